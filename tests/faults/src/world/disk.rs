//! The disk of the SQLite files: small, and full when told to be.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context, ensure};

use super::program::Program;

/// Room for a campaign's rows, and small enough to be filled at once.
const SIZE: &str = "256m";

const BALLAST: &str = "ballast";

/// Every file of a service is longer.
const NOTHING: &str = "4096";

/// Where the SQLite files are, and how their disk is filled.
#[derive(Clone, Debug)]
pub struct Disk {
    directory: PathBuf,
    means: Means,
    _mounted: Option<Arc<Mounted>>,
}

/// How a disk gets full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// It is a small file system of its own, and something else takes all the room that is left.
    Ballast,
    /// A process may write no further than the first page of any file (`RLIMIT_FSIZE`), for those who may not mount.
    Limit,
}

#[derive(Debug)]
struct Mounted(PathBuf);

// === impl Disk ===

impl Disk {
    /// Makes the directory a small file system if that is permitted.
    pub fn new(directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).context("the directory of the SQLite files")?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "faults"]).arg(directory);
        let is_mounted = mount.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
        let mounted = is_mounted.then(|| Arc::new(Mounted(directory.to_owned())));
        let means = if is_mounted { Means::Ballast } else { Means::Limit };
        Ok(Self { directory: directory.to_owned(), means, _mounted: mounted })
    }

    /// For the report.
    pub fn describe(&self) -> &'static str {
        match self.means {
            Means::Ballast => "a file system of its own (tmpfs), filled with a ballast file",
            Means::Limit => "RLIMIT_FSIZE of the process, set by prlimit (mounting is not permitted here)",
        }
    }

    /// Where a file goes.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// What `program` and its arguments become so that the process survives the signal that a limit sends.
    pub fn wrap(&self, binary: PathBuf, arguments: Vec<String>) -> (PathBuf, Vec<String>) {
        match self.means {
            Means::Ballast => (binary, arguments),
            Means::Limit => {
                let script = "trap '' XFSZ; exec \"$0\" \"$@\"".to_owned();
                let all = ["-c".to_owned(), script, binary.display().to_string()].into_iter().chain(arguments);
                ("sh".into(), all.collect())
            }
        }
    }

    /// No more bytes fit, for these processes.
    pub fn fill(&self, programs: &[&Program]) -> anyhow::Result<()> {
        match self.means {
            Means::Ballast => fill_up(&self.path(BALLAST)),
            Means::Limit => programs.iter().try_for_each(|program| limit(program, NOTHING)),
        }
    }

    /// There is room again.
    pub fn free(&self, programs: &[&Program]) -> anyhow::Result<()> {
        match self.means {
            Means::Ballast => match std::fs::remove_file(self.path(BALLAST)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("the ballast"),
                _ => Ok(()),
            },
            Means::Limit => programs.iter().try_for_each(|program| limit(program, "unlimited")),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a process that is being ended may still have its file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

// === helpers ===

/// Writes until nothing fits any more, in smaller and smaller pieces.
fn fill_up(path: &Path) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path).context("the ballast")?;
    for piece in [1 << 20, 4096, 1] {
        let zeros = vec![0; piece];
        while file.write(&zeros).is_ok_and(|n| n > 0) {}
    }
    Ok(())
}

fn limit(program: &Program, bytes: &str) -> anyhow::Result<()> {
    let Some(pid) = program.pid() else { return Ok(()) };
    let status =
        Command::new("prlimit").args(["--pid", &pid.to_string()]).arg(format!("--fsize={bytes}:unlimited")).status();
    ensure!(status.context("prlimit")?.success(), "prlimit of {} is refused", program.name());
    Ok(())
}
