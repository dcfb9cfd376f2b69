//! ENVIRONMENT_VARIABLES.md says what the programs say. `UPDATE=1 cargo test -p idem-local` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{env, fmt::Write, fs, path::Path};

use clap::{Args, Command, CommandFactory};

/// A program whose flags are a group of arguments.
fn program<A: Args>(name: &'static str) -> Command {
    A::augment_args(Command::new(name))
}

fn table(command: &Command) -> String {
    let mut text =
        format!("\n## {}\n\n| variable | flag | default | what it is |\n|---|---|---|---|\n", command.get_name());
    for argument in command.get_arguments().filter(|argument| argument.get_env().is_some()) {
        let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
        let default = defaults.collect::<Vec<_>>().join(",");
        let default = if default.is_empty() || argument.is_hide_default_value_set() {
            "–".into()
        } else {
            format!("`{default}`")
        };
        writeln!(
            text,
            "| `{}` | `--{}` | {default} | {} |",
            argument.get_env().unwrap().to_string_lossy(),
            argument.get_long().unwrap(),
            argument.get_help().map(ToString::to_string).unwrap_or_default(),
        )
        .unwrap();
    }
    text
}

#[test]
fn the_page_of_environment_variables_says_what_the_programs_say() {
    let programs = [
        gateway::Flags::command().name("gateway"),
        program::<idem_service::Config>("idem-service"),
        program::<orders_service::Config>("orders-service"),
        acquirer_sandbox::Config::command(),
        idem_local::Flags::command(),
    ];
    let mut page = String::from(
        "# Environment variables\n\nGenerated from the programs' own flags; a test holds this page to them. A flag on the command line wins. Durations are\nwritten as `500ms`, `60s`, `24h`. OpenTelemetry is configured by its standard `OTEL_…` variables, logging by `RUST_LOG`.\n",
    );
    programs.iter().for_each(|program| page.push_str(&table(program)));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ENVIRONMENT_VARIABLES.md");
    if env::var_os("UPDATE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap_or_default(), page, "run `UPDATE=1 cargo test -p idem-local`");
}

#[test]
fn every_flag_has_a_variable() {
    for program in [gateway::Flags::command(), acquirer_sandbox::Config::command(), idem_local::Flags::command()] {
        for argument in program.get_arguments().filter(|a| !["help", "version"].contains(&a.get_id().as_str())) {
            assert!(argument.get_env().is_some(), "{} of {}", argument.get_id(), program.get_name());
        }
    }
}
