//! All that is started for a run, and ended with it: a Postgres of its own, the product, and what it is compared with.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

pub mod machine;
pub mod meter;
pub mod postgres;
pub mod program;
pub mod system;

use self::{postgres::Server, program::Program};

/// Where everything plays.
pub struct Stage {
    /// The one Postgres: whoever is compared stands on the same one.
    pub postgres: Server,
    binaries: Vec<PathBuf>,
    home: tempfile::TempDir,
}

// === impl Stage ===

impl Stage {
    /// Starts Postgres. The product's programs are looked for in `bin_dir`, then beside this one.
    pub fn open(bin_dir: Option<&Path>) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("where this program is")?;
        let beside = own.parent().context("a program without a directory")?.to_owned();
        let binaries = bin_dir.map(Path::to_owned).into_iter().chain([beside]).collect();
        let home = tempfile::Builder::new().prefix("load-").tempdir().context("a temporary directory")?;
        let postgres = Server::start(home.path(), free_port::one()?)?;
        Ok(Self { postgres, binaries, home })
    }

    /// Where logs and files are; it goes with the stage.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts one of the product's programs.
    pub fn program(
        &self,
        name: &str,
        binary: &str,
        arguments: &[String],
        environment: &[(String, String)],
    ) -> anyhow::Result<Program> {
        Program::start(name, &self.binary(binary)?, arguments, environment, self.home())
    }

    /// Starts this program itself, as something to compare with.
    pub fn baseline(&self, name: &str, arguments: &[String]) -> anyhow::Result<Program> {
        let own = std::env::current_exe().context("where this program is")?;
        let words: Vec<String> = ["baseline".to_owned()].iter().chain(arguments).cloned().collect();
        Program::start(name, &own, &words, &[], self.home())
    }

    /// Runs one of the product's programs to its end.
    pub fn run(&self, binary: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let output = std::process::Command::new(self.binary(binary)?).args(arguments).output()?;
        ensure!(output.status.success(), "{binary} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    fn binary(&self, name: &str) -> anyhow::Result<PathBuf> {
        let found = self.binaries.iter().map(|place| place.join(name)).find(|path| path.exists());
        found.with_context(|| {
            format!(
                "{name} is missing: run `cargo build --release --workspace --bins`, or say where it is with --bin-dir"
            )
        })
    }
}
