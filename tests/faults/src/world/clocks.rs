//! The wall clocks of the processes, each of which can be put forward and back while it runs (libfaketime).

use std::path::{Path, PathBuf};

use anyhow::Context;

const LIBRARY: &str = "libfaketimeMT.so.1";

/// The library, when it is installed, and where each process's offset is written.
#[derive(Clone, Debug)]
pub struct Clocks {
    library: PathBuf,
    directory: PathBuf,
}

// === impl Clocks ===

impl Clocks {
    /// None when the library is not installed (Debian's package `faketime`).
    pub fn find(directory: &Path) -> Option<Self> {
        let places = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
        let library = places.map(|place| place.join("faketime").join(LIBRARY)).find(|library| library.exists())?;
        Some(Self { library, directory: directory.to_owned() })
    }

    /// The environment of a process whose clock can be moved. Durations stay true: the monotonic clock is left alone.
    pub fn environment(&self, program: &str) -> anyhow::Result<Vec<(String, String)>> {
        self.set(program, 0)?;
        let file = self.file(program).display().to_string();
        let pairs = [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            // The file is read again each second.
            ("FAKETIME_CACHE_DURATION", "1".into()),
        ];
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Puts a process's clock so many seconds off the true time; it notices within a second.
    pub fn set(&self, program: &str, seconds: i64) -> anyhow::Result<()> {
        // Renamed into place, so that nobody reads half of it.
        let (file, new) = (self.file(program), self.file(program).with_extension("new"));
        std::fs::write(&new, format!("{seconds:+}\n")).context("the offset of a clock")?;
        std::fs::rename(new, file).context("the offset of a clock")
    }

    fn file(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}.clock"))
    }
}

/// What the library leaves behind when its process is killed.
pub fn forget(pid: u32) {
    for left in [format!("/dev/shm/faketime_shm_{pid}"), format!("/dev/shm/sem.faketime_sem_{pid}")] {
        let _ = std::fs::remove_file(left);
    }
}
