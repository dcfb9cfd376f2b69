//! Rate against latency in an open loop, the product beside the naive handler.

use std::path::Path;

use crate::{
    bench::Bench,
    generator::measured::Measured,
    picture::{Curve, Point, draw},
    say,
    stage::system::{System, Wanted},
    workload::{
        baselines::Naive,
        orders::{Spreading, orders},
    },
};

/// Of the highest rate in a closed loop: from a quiet night to more than it bears.
const SHARES: [f64; 7] = [0.1, 0.25, 0.5, 0.7, 0.85, 1.0, 1.15];

/// Orders of one hot ticket type, at `rates` or at shares of what either side can do.
pub async fn run(bench: &mut Bench, rates: &[f64], svg: Option<&Path>) -> anyhow::Result<serde_json::Value> {
    let naive = Naive::start(bench).await?;
    let system = System::start(&mut bench.stage, &Wanted::one("curve")).await?;
    system.offer("hot", 1).await?;
    let retries = bench.settings.retries;
    let ours = orders(bench, &system, Spreading::Hot, bench.probe(), None).await?.checked()?.rate();
    let theirs = naive.orders(bench, bench.probe(), retries).await?.checked()?.rate();
    let chosen = |peak: f64| -> Vec<f64> {
        if rates.is_empty() { SHARES.iter().map(|share| share * peak).collect() } else { rates.to_vec() }
    };
    let (ours, theirs) = (chosen(ours), chosen(theirs));
    let mut curves = [("orders, one hot ticket type", Vec::new()), ("(e) naive handler", Vec::new())];
    for (own, other) in ours.iter().zip(&theirs) {
        let measured = orders(bench, &system, Spreading::Hot, bench.open_loop(*own), None).await?.checked()?;
        curves[0].1.push(point(*own, &measured));
        let measured = naive.orders(bench, bench.open_loop(*other), retries).await?.checked()?;
        curves[1].1.push(point(*other, &measured));
    }
    let curves = curves.map(|(name, points)| Curve { name: name.to_owned(), points });
    for curve in &curves {
        for point in &curve.points {
            let Point { rate, p50, p99 } = point;
            say::result(&format!("{:<28} {rate:>7.0}/s  p50 {p50:>8.2} ms  p99 {p99:>8.2} ms", curve.name));
        }
    }
    if let Some(file) = svg {
        let title = format!("Rate against latency, {} connections", bench.settings.connections);
        std::fs::write(file, draw(&title, &curves))?;
    }
    Ok(serde_json::json!(curves.map(|curve| {
        let points: Vec<_> = curve.points.iter().map(|p| serde_json::json!([p.rate, p.p50, p.p99])).collect();
        serde_json::json!({"name": curve.name, "points": points})
    })))
}

fn point(rate: f64, measured: &Measured) -> Point {
    Point { rate, p50: measured.quantile_ms(0.5), p99: measured.quantile_ms(0.99) }
}
