//! One run of the benchmark: its stage, and how thorough it is.

use std::{net::SocketAddr, time::Duration};

use crate::{
    flags::Settings,
    generator::{
        loops,
        measured::Measured,
        pace::{Pace, Plan},
        script::{HttpSession, Script},
    },
    stage::{Stage, meter::Meter, postgres::Server, program::Program},
};

/// What the product stores and answers for an order, as far as what it is compared with answers something of its size.
pub const ANSWER_BYTES: usize = 450;

/// The run.
pub struct Bench {
    /// Everything that is started.
    pub stage: Stage,
    /// How thorough.
    pub settings: Settings,
}

// === impl Bench ===

impl Bench {
    /// Opens the stage.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        Ok(Self { stage: Stage::open(settings.bin_dir.as_deref())?, settings })
    }

    /// The usual time, at the pace that was asked for.
    pub fn plan(&self) -> Plan {
        let pace = self.settings.rate.map_or(Pace::Closed, Pace::Open);
        Plan { pace, warm_up: self.settings.warm_up(), length: self.settings.length() }
    }

    /// The usual time in an open loop.
    pub fn open_loop(&self, rate: f64) -> Plan {
        Plan { pace: Pace::Open(rate), ..self.plan() }
    }

    /// As fast as it goes, without warming up: to prepare, not to measure.
    pub fn preparing(&self, length: Duration) -> Plan {
        Plan { pace: Pace::Closed, warm_up: Duration::ZERO, length }
    }

    /// A short closed loop, to find out what is best or how fast something is about.
    pub fn probe(&self) -> Plan {
        Plan { pace: Pace::Closed, warm_up: Duration::from_millis(500), length: Duration::from_millis(1500) }
    }

    /// Starts something to compare with that listens, and says where.
    pub async fn serve(&mut self, kind: &str, arguments: &[(&str, &str)]) -> anyhow::Result<(Program, SocketAddr)> {
        let address = free_port::one()?;
        let mut words = vec![kind.to_owned(), "--listen".to_owned(), address.to_string()];
        words.extend(arguments.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]));
        let mut program = self.stage.baseline(&format!("{kind}-{}", address.port()), &words)?;
        program.until_listening(address).await?;
        Ok((program, address))
    }

    /// Reads what everything of this run uses of the processors.
    pub fn meter(&self) -> anyhow::Result<Meter> {
        Ok(Meter::of(&[self.postgres().pid()?]))
    }

    /// The one Postgres.
    pub fn postgres(&self) -> &Server {
        &self.stage.postgres
    }
}

/// Runs `count` scripts, each over a connection of its own to one address.
pub async fn over_http<S: Script>(
    label: &str,
    count: usize,
    plan: Plan,
    address: SocketAddr,
    make: impl Fn(usize) -> S + Send + 'static,
) -> anyhow::Result<Measured> {
    loops::run(label, count, plan, move |number| HttpSession::new(address, make(number))).await
}
