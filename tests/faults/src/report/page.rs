//! The report as a page for people.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{Report, figures::Percentiles, story::Story};

pub(super) fn of(report: &Report) -> String {
    let mut page = String::new();
    let verdict = match report.violations.len() {
        0 => "nothing was violated".to_owned(),
        1 => "1 violation".to_owned(),
        many => format!("{many} violations"),
    };
    let it = &report.figures;
    let seconds = it.duration_ms / 1000;
    let faults: usize = it.faults.values().sum();
    let mut say = |line: std::fmt::Arguments<'_>| {
        page.write_fmt(line).expect("a string takes everything");
        page.push('\n');
    };
    say(format_args!("# {verdict}\n"));
    say(format_args!("{} operations and {faults} faults in {seconds} s, seed {}.\n", it.operations, report.seed));
    say(format_args!("    {}\n", report.command));
    say(format_args!("Rules: {}.\n", report.rules.join(", ")));
    say(format_args!(
        "Judged: {} answers that no fault can excuse, {} replays, {} keys asked for again at the end, {} looks at the stock, {} changes of tokens. {} keys were granted more than once.\n",
        it.unexcused, it.replays, it.swept, it.stock_samples, it.token_samples, it.keys_granted_again
    ));
    say(format_args!("Faults: {}.\n", list(&it.faults)));
    say(format_args!("Intents: {}.\n", list(&it.intents)));
    say(format_args!("Keys: {}. Orders: {}. Payments: {}.\n", list(&it.keys), list(&it.orders), list(&it.payments)));
    say(format_args!(
        "The acquirer made {} charges, captured {} and gave {} back (minor units).\n",
        it.charges, it.captured, it.refunded
    ));
    say(format_args!("| answers, ms | count | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|"));
    say(format_args!("{}", percentiles("without faults", &it.latency_without_faults)));
    say(format_args!("{}\n", percentiles("with faults", &it.latency_with_faults)));
    say(format_args!("| asked for | what came of it |\n|---|---|"));
    for (asked, outcomes) in &it.outcomes {
        say(format_args!("| {asked} | {} |", list(outcomes)));
    }
    if !report.violations.is_empty() {
        say(format_args!("\n## What was violated\n"));
    }
    for violation in &report.violations {
        say(format_args!("- {violation}"));
    }
    for (number, story) in report.stories.iter().enumerate() {
        say(format_args!("\n### {}. {}\n", number + 1, story.violation));
        say(format_args!("{}", tell(story)));
    }
    page
}

fn tell(story: &Story) -> String {
    let mut text = String::from("```\n");
    for event in &story.events {
        text += &format!("{event}\n");
    }
    for row in &story.rows {
        text += &format!("{row}\n");
    }
    for token in &story.tokens {
        text += &format!("{token}\n");
    }
    for window in &story.faults {
        let until = window.until_ms.map(|ms| ms.to_string()).unwrap_or_default();
        text += &format!("{}–{until} ms: {} {}\n", window.from_ms, window.fault, window.target);
    }
    text + "```"
}

fn list(counts: &BTreeMap<String, usize>) -> String {
    let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn percentiles(name: &str, it: &Percentiles) -> String {
    format!("| {name} | {} | {} | {} | {} | {} |", it.count, it.p50, it.p90, it.p99, it.max)
}

#[cfg(test)]
mod tests {
    use crate::{
        checker,
        history::{History, Purpose},
        ledger::Ledger,
        report::Report,
    };

    #[test]
    fn a_page_tells_the_whole_story_of_a_violation() {
        let call = crate::history::Call {
            id: 7,
            intent: None,
            buyer: 2,
            purpose: Purpose::Retry,
            gateway: 1,
            tenant: "a".into(),
            method: "POST".into(),
            path: "/v1/orders".into(),
            key: Some("k".into()),
            body: "{}".into(),
            wait_s: None,
            sent_ms: 40,
            done_ms: None,
            heard: None,
        };
        let history = History { calls: vec![call], ..History::default() };
        let window = crate::edge::Window {
            fault: "kill".into(),
            target: "gateway-0".into(),
            from_ms: 9_000,
            until_ms: Some(9_500),
        };
        let (ledger, windows) = (Ledger::default(), [window]);
        let violations = checker::check(&history, &ledger, &windows);
        let page = super::of(&Report::of(&history, &ledger, &windows, &violations));
        assert!(page.starts_with("# 1 violation"), "{page}");
        assert!(page.contains("[availability] call 7 has no end in the record"), "{page}");
        assert!(
            page.contains("40– ms, call 7 (Retry), buyer 2 of a, gateway 1: POST /v1/orders key \"k\" {} → no end")
        );
        assert!(page.contains("9000–9500 ms: kill gateway-0"), "{page}");
    }
}
