//! `idem-service`: serves, migrates its store, prints its configuration, or asks one that runs whether it is ready.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use chassis::{Allocator, flags, healthcheck, process, shutdown};
use clap::{Parser, Subcommand};
use database::{Clock, StoreUrl};
use idem_service::{Config, IdemService, StartError, store};

/// The idempotency service: makes operations safe to retry, for every service that calls it over gRPC.
#[derive(Parser)]
#[command(name = "idem-service", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    config: Config,
}

#[derive(Subcommand)]
enum Command {
    /// Serve; this is also what happens without a subcommand.
    Serve(Config),
    /// Bring the store to the schema of this release, then exit.
    Migrate {
        /// Which store: sqlite:PATH, or postgres://USER@HOST/DATABASE.
        #[arg(long, env = "IDEM_STORE", value_name = "URL", hide_env_values = true)]
        store: StoreUrl,
    },
    /// Print the configuration as environment variables, then exit.
    PrintConfig(Config),
    /// Ask the service that runs here whether it is ready: exits with 0 if so, else with 1 and the reason.
    Healthcheck {
        /// Where its admin pages are.
        #[arg(long, env = "IDEM_ADMIN_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:7002")]
        admin_listen: SocketAddr,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let Cli { command, config } = parse();
    match command.unwrap_or(Command::Serve(config)) {
        Command::Serve(config) => process::run("idem-service", || judge(config), serve),
        Command::Migrate { store } => process::run("idem-service", || Ok::<_, StartError>(store), migrate),
        Command::PrintConfig(config) => process::run("idem-service", || judge(config), print),
        Command::Healthcheck { admin_listen } => healthcheck::run("idem-service", admin_listen, "/readyz"),
    }
}

/// The command line. clap repeats a value that it refuses, and the URL of a store may hold a password.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| match flags::without_passwords(&error.to_string()) {
        Some(masked) => {
            let _ = write!(io::stderr(), "{masked}");
            std::process::exit(error.exit_code())
        }
        None => error.exit(),
    })
}

/// Refuses a configuration that contradicts itself, before anything is bound or opened.
fn judge(config: Config) -> Result<Config, StartError> {
    config.authentication()?;
    config.tls()?;
    config.sealing()?;
    Ok(config)
}

async fn serve(config: Config) -> Result<(), StartError> {
    let drain_delay = config.drain_delay;
    let service = IdemService::bind(config, Clock::system()).await?;
    // Before anybody is told that it serves: from then on a signal must drain.
    let shutdown = shutdown::on_signals(drain_delay, service.readiness());
    tracing::info!(grpc = %service.local_addr(), admin = %service.admin_addr(), "serving");
    service.serve(shutdown).await;
    Ok(())
}

async fn migrate(store: StoreUrl) -> Result<(), StartError> {
    say(store::migrate(&store).await?);
    Ok(())
}

async fn print(config: Config) -> Result<(), StartError> {
    say(config);
    Ok(())
}

/// Writes what the person who ran it asked for. A reader that has heard enough, such as `head`, is no failure.
fn say(answer: impl Display) {
    let _ = writeln!(io::stdout(), "{answer}");
}
