//! From `main` to an exit code.

use crate::telemetry;
use std::{
    backtrace::{Backtrace, BacktraceStatus},
    error::Error,
    fmt::Write as _,
    future::Future,
    panic,
    process::ExitCode,
    time::Duration,
};

/// Any error that a process can end with; `anyhow::Error`, `String` and every error enum convert into it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The exit code for flags, environment and files that make no sense, as clap uses it.
const BAD_CONFIGURATION: u8 = 2;

/// How long blocking work may go on after `main` has returned.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// Runs a process: starts the runtime and telemetry, judges the configuration, then runs `main` with it.
///
/// Nothing is bound or opened before `configure` has accepted flags, environment and files: its refusal exits with 2, an
/// error of `main` with 1, each as one sentence on stderr. Both run inside the runtime, and log like everything else.
/// Telemetry is flushed at the end.
pub fn run<C, E1, E2, F>(
    service_name: &'static str,
    configure: impl FnOnce() -> Result<C, E1>,
    main: impl FnOnce(C) -> F,
) -> ExitCode
where
    E1: Into<BoxError>,
    E2: Into<BoxError>,
    F: Future<Output = Result<(), E2>>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(service_name, &error, ExitCode::FAILURE),
    };
    let context = runtime.enter();
    let telemetry = telemetry::init(service_name);
    log_panics();
    let code = match configure().map_err(Into::into) {
        Err(error) => refuse(service_name, error.as_ref(), ExitCode::from(BAD_CONFIGURATION)),
        Ok(config) => match runtime.block_on(main(config)).map_err(Into::into) {
            Err(error) => refuse(service_name, error.as_ref(), ExitCode::FAILURE),
            Ok(()) => ExitCode::SUCCESS,
        },
    };
    // Before the runtime goes: the exporter's connection lives on it.
    drop(telemetry);
    drop(context);
    runtime.shutdown_timeout(STRAGGLERS);
    code
}

/// The error and its causes as one sentence, joined with `: `.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some libraries repeat their cause in their own text.
        if !sentence.ends_with(&text) {
            let _ = write!(sentence, ": {text}");
        }
        cause = error.source();
    }
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A panic is a line in the log like any other error, with its trace id.
fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = payload.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let location = panic.location().map(ToString::to_string);
        // Empty unless RUST_BACKTRACE asks for it.
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(location, backtrace, "panic: {message}");
    }));
}

#[allow(clippy::print_stderr, reason = "the last word of a process to the person who started it")]
pub(crate) fn refuse(service_name: &str, error: &(dyn Error + 'static), code: ExitCode) -> ExitCode {
    eprintln!("{service_name}: {}", sentence(error));
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read service tokens from tokens.json")]
    struct Outer(#[source] io::Error);

    #[test]
    fn causes_are_joined_into_one_line_and_not_repeated() {
        let outer = Outer(io::Error::other("disk on\n  fire"));
        assert_eq!(sentence(&outer), "cannot read service tokens from tokens.json: disk on fire");
        let repeating = io::Error::other(Outer(io::Error::other("gone")));
        assert_eq!(sentence(&repeating), "cannot read service tokens from tokens.json: gone");
    }

    #[test]
    fn configuration_and_run_time_errors_have_their_own_exit_codes() {
        let ok = || Ok::<_, BoxError>(1);
        let code = |code: ExitCode| format!("{code:?}");
        let refused = run("test", || Err::<(), _>("no"), |()| async { Ok::<_, BoxError>(()) });
        assert_eq!(code(refused), code(ExitCode::from(2)));
        assert_eq!(code(run("test", ok, |_| async { Err("no") })), code(ExitCode::from(1)));
        assert_eq!(code(run("test", ok, |_| async { Ok::<_, BoxError>(()) })), code(ExitCode::SUCCESS));
    }
}
