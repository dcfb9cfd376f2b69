//! What it costs to be followed: no collector, one that takes everything, one that is gone, and one that never answers.

use std::net::SocketAddr;

use axum::{Router, http::StatusCode};
use bytes::Bytes;
use tokio::net::TcpListener;

use super::orders::{Spreading, orders};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Rounds, Side, Spread, alternate},
    stage::system::{System, Wanted},
};

/// Those whose processor time counts: not that of the collector, nor of Postgres.
const SERVICES: [&str; 3] = ["gateway", "idem-service", "orders-service"];

/// Orders of one hot type, by the processor time that the services spend on each.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let sink = sink().await?;
    let gone = free_port::one()?;
    // The kernel takes connections, and nobody ever speaks.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let none = started(bench, "untraced", None).await?;
    let taken = started(bench, "traced", Some(sink)).await?;
    let refused = started(bench, "deserted", Some(gone)).await?;
    let unheard = started(bench, "unheard", Some(silent.local_addr()?)).await?;
    let bench = &*bench;
    let side = |name, system| Side::new(name, move |_| orders(bench, system, Spreading::Hot, bench.plan(), None));
    let sides = vec![
        side("no collector", &none),
        side("a collector that takes everything", &taken),
        side("a collector that is gone", &refused),
        side("a collector that never answers", &unheard),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let [none, taken, gone, silent] = &sides[..] else { anyhow::bail!("four sides") };
    let bars = vec![
        Bar::at_most("an order's processor time, collector gone, against none", ratio(gone, none), "×", 1.01),
        Bar::at_most("an order's processor time, collector silent, against none", ratio(silent, none), "×", 1.01),
        Bar::at_most("an order's processor time, every trace taken, against none", ratio(taken, none), "×", 1.25),
    ];
    Ok(Report::new("tracing", bars, sides))
}

async fn started(bench: &mut Bench, name: &'static str, collector: Option<SocketAddr>) -> anyhow::Result<System> {
    let mut wanted = Wanted::one(name);
    if let Some(collector) = collector {
        wanted.environment = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{collector}")),
            ("OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), "http/protobuf".to_owned()),
        ];
    }
    let system = System::start(&mut bench.stage, &wanted).await?;
    system.offer("hot", 1).await?;
    Ok(system)
}

/// Reads what it is sent, and says thank you.
async fn sink() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().fallback(|_body: Bytes| async { StatusCode::OK });
    chassis::tasks::Tasks::new().spawn("collector", async move { axum::serve(listener, app).await });
    Ok(address)
}

fn ratio(of: &Rounds, to: &Rounds) -> Spread {
    Spread::ratio(&of.cost_of(&SERVICES), &to.cost_of(&SERVICES))
}
