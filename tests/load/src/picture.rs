//! A picture of rate against latency, drawn by hand: two panels, p50 and p99, a line for each side.

use std::fmt::Write as _;

/// One side's line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// As in the legend.
    pub name: String,
    /// In the order of their rates.
    pub points: Vec<Point>,
}

/// What a rate came to.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Asked for, a second.
    pub rate: f64,
    /// Half of the answers came sooner, in milliseconds.
    pub p50: f64,
    /// All but one of a hundred came sooner.
    pub p99: f64,
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const PANEL_WIDTH: f64 = 350.0;
const PANEL_HEIGHT: f64 = 280.0;
const GAP: f64 = 80.0;
/// Apart in lightness too, for those who see colours otherwise.
const COLOURS: [&str; 4] = ["#0b5394", "#e69138", "#38761d", "#741b47"];

/// What the axes span.
struct Scale {
    rate_max: f64,
    /// Powers of ten.
    low: f64,
    high: f64,
}

/// The whole picture as SVG.
pub fn draw(title: &str, curves: &[Curve]) -> String {
    let scale = Scale::of(curves);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(
        &mut svg,
        (LEFT, 24.0),
        "start",
        &format!("<tspan font-size=\"15\" font-weight=\"bold\">{}</tspan>", escape(title)),
    );
    for (number, curve) in curves.iter().enumerate() {
        let (x, colour) = (LEFT + 230.0 * number as f64, COLOURS[number % COLOURS.len()]);
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"36\" width=\"14\" height=\"4\" fill=\"{colour}\"/>");
        text(&mut svg, (x + 20.0, 42.0), "start", &escape(&curve.name));
    }
    for (panel, name, value) in
        [(0.0, "p50", (|point| point.p50) as fn(&Point) -> f64), (1.0, "p99", |point| point.p99)]
    {
        let left = LEFT + panel * (PANEL_WIDTH + GAP);
        scale.axes(&mut svg, left, name);
        for (number, curve) in curves.iter().enumerate() {
            scale.line(&mut svg, left, curve, COLOURS[number % COLOURS.len()], value);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

// === impl Scale ===

impl Scale {
    fn of(curves: &[Curve]) -> Self {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let rate = points().map(|point| point.rate).fold(1.0, f64::max);
        let latencies = || points().flat_map(|point| [point.p50, point.p99]).filter(|latency| *latency > 0.0);
        let (low, high) = (latencies().fold(1.0, f64::min), latencies().fold(1.0, f64::max));
        Self {
            rate_max: round_up(rate),
            low: low.log10().floor(),
            high: high.log10().ceil().max(low.log10().floor() + 1.0),
        }
    }

    fn x(&self, left: f64, rate: f64) -> f64 {
        left + PANEL_WIDTH * rate / self.rate_max
    }

    /// Latency grows by powers when a queue does, so the axis does too.
    fn y(&self, latency: f64) -> f64 {
        let share = (latency.max(1e-3).log10() - self.low) / (self.high - self.low);
        TOP + PANEL_HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }

    fn axes(&self, svg: &mut String, left: f64, name: &str) {
        let (right, bottom) = (left + PANEL_WIDTH, TOP + PANEL_HEIGHT);
        let mut power = self.low;
        while power <= self.high {
            let (latency, y) = (10_f64.powf(power), self.y(10_f64.powf(power)));
            let _ = writeln!(svg, "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/>");
            text(svg, (left - 6.0, y + 4.0), "end", &format!("{latency}"));
            power += 1.0;
        }
        for step in 0..=5 {
            let rate = self.rate_max * f64::from(step) / 5.0;
            let x = self.x(left, rate);
            let _ = writeln!(svg, "<path d=\"M{x:.1} {bottom:.1}v5\" stroke=\"black\"/>");
            text(svg, (x, bottom + 18.0), "middle", &format!("{rate:.0}"));
        }
        let _ =
            writeln!(svg, "<path d=\"M{left:.1} {TOP:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"black\"/>");
        text(
            svg,
            ((left + right) / 2.0, bottom + 38.0),
            "middle",
            "requests a second, sent whether or not answers come",
        );
        text(svg, (left + 8.0, TOP + 14.0), "start", &format!("{name}, ms from when it was due"));
    }

    fn line(&self, svg: &mut String, left: f64, curve: &Curve, colour: &str, value: fn(&Point) -> f64) {
        let place = |point: &Point| (self.x(left, point.rate), self.y(value(point)));
        let path: Vec<String> = curve.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        let _ = writeln!(svg, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        for point in &curve.points {
            let (x, y) = place(point);
            let what = format!("{}: {:.0}/s, {:.2} ms", escape(&curve.name), point.rate, value(point));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{what}</title></circle>"
            );
        }
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, markup: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{markup}</text>");
}

/// To a short multiple of a power of ten, so that a fifth of it is a number to read.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|round| *round >= value)
        .unwrap_or(value)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Vec<Curve> {
        let point = |rate, p50, p99| Point { rate, p50, p99 };
        vec![
            Curve { name: "ours <1>".to_owned(), points: vec![point(100.0, 0.8, 2.0), point(900.0, 1.5, 40.0)] },
            Curve { name: "a & b".to_owned(), points: vec![point(100.0, 1.0, 3.0), point(450.0, 9.0, 2300.0)] },
        ]
    }

    /// Every tag is closed by its own name, and nothing stands unescaped: enough of XML for what is drawn here.
    fn assert_well_formed(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        for piece in svg.split('<').skip(1) {
            let (tag, rest) = piece.split_once('>').expect("a tag has an end");
            assert!(!rest.contains('>'), "unescaped in {rest:?}");
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag:?}");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            for after in rest.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| after.starts_with(known)), "{rest:?}");
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn the_picture_is_well_formed_and_has_every_point_twice() {
        let svg = draw("rate & latency", &curves());
        assert_well_formed(&svg);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (8, 4));
        assert!(svg.contains("ours &lt;1&gt;") && svg.contains("a &amp; b") && !svg.contains("NaN"));
    }

    #[test]
    fn a_picture_of_nothing_is_a_picture() {
        let svg = draw("", &[]);
        assert_well_formed(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn faster_is_lower_and_more_is_further_right() {
        let scale = Scale::of(&curves());
        assert_eq!(scale.rate_max, 1000.0);
        assert!(scale.y(0.8) > scale.y(2.0) && scale.x(0.0, 900.0) > scale.x(0.0, 100.0));
        assert!((TOP..=TOP + PANEL_HEIGHT).contains(&scale.y(1e9)));
    }
}
