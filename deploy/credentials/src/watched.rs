//! Files that are read again when they change.

use std::{
    error::Error,
    fmt, io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, RwLock, Weak},
    thread,
    time::Duration,
};

/// How often files are looked at: a rotation is in use within a second, and reading a few kilobytes costs nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After how many looks at a file that stays broken the log says so again.
const REMIND_AFTER: u32 = 60;

/// What some files say, as they are now. Cheap to clone; every clone sees the same.
///
/// The files are read whole and compared, so it does not matter how they are replaced: written over, renamed onto, or a symbolic link that
/// turns elsewhere as Kubernetes does it.
pub struct Watched<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    current: RwLock<Arc<T>>,
    /// None: given in code, and never read again.
    source: Option<Source<T>>,
}

type Read<T> = dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync;

struct Source<T> {
    what: &'static str,
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    looks: Mutex<Looks>,
}

/// What the last look has seen.
struct Looks {
    /// None: a file could not be read.
    contents: Option<Vec<Vec<u8>>>,
    /// Looks since the log was told that the files are broken; none while they are good.
    broken_for: Option<u32>,
}

/// Files that cannot be used.
#[derive(Debug)]
pub enum CredentialsError {
    /// One of them could not be read.
    Read {
        /// What it should hold.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// They do not say what they must.
    Content {
        /// What they should hold.
        what: &'static str,
        /// Where they are.
        paths: Vec<PathBuf>,
        /// What is wrong.
        why: String,
    },
}

/// Something that looks at its files when it is told to.
trait Look: Send + Sync {
    fn look(&self);
}

// === impl Watched ===

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads `files` with `read`, now and again whenever they change. `what` names them in errors: "the service tokens". A secret must not
    /// appear in what `read` complains about.
    pub fn open(
        what: &'static str,
        files: Vec<PathBuf>,
        read: impl Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, CredentialsError> {
        let contents = contents(what, &files)?;
        let value = read(&contents).map_err(|why| CredentialsError::Content { what, paths: files.clone(), why })?;
        let looks = Mutex::new(Looks { contents: Some(contents), broken_for: None });
        let source = Some(Source { what, files, read: Box::new(read), looks });
        let inner = Arc::new(Inner { current: RwLock::new(Arc::new(value)), source });
        let watched: Weak<Inner<T>> = Arc::downgrade(&inner);
        watch(watched);
        Ok(Self { inner })
    }

    /// A value given in code.
    pub fn fixed(value: T) -> Self {
        Self { inner: Arc::new(Inner { current: RwLock::new(Arc::new(value)), source: None }) }
    }

    /// What the files said when they were last good.
    pub fn current(&self) -> Arc<T> {
        self.inner.current.read().expect("nothing panics while it holds this lock").clone()
    }

    /// Looks at the files now, instead of within a second.
    pub fn look(&self) {
        self.inner.look();
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched(…)")
    }
}

// === impl Inner ===

impl<T: Send + Sync> Look for Inner<T> {
    fn look(&self) {
        let Some(source) = &self.source else { return };
        let mut looks = source.looks.lock().expect("nothing panics while it holds this lock");
        let read = contents(source.what, &source.files);
        let seen = read.as_ref().ok();
        if seen == looks.contents.as_ref() {
            return looks.remind(source.what);
        }
        looks.contents = seen.cloned();
        let value = read.and_then(|contents| {
            (source.read)(&contents).map_err(|why| CredentialsError::Content {
                what: source.what,
                paths: source.files.clone(),
                why,
            })
        });
        match value {
            Ok(value) => {
                *self.current.write().expect("nothing panics while it holds this lock") = Arc::new(value);
                looks.broken_for = None;
                count(source.what, "used");
                tracing::info!(files = ?source.files, "{} were read again and are used from now on", source.what);
            }
            Err(error) => {
                looks.broken_for = Some(0);
                count(source.what, "refused");
                let error = sentence(&error);
                tracing::error!(%error, "a changed file is not used: {} that were read before go on to be", source.what);
            }
        }
    }
}

// === impl Looks ===

impl Looks {
    /// A broken file is said again and again: the old content goes on to be used, until the process restarts and does not start.
    fn remind(&mut self, what: &str) {
        let Some(looks) = &mut self.broken_for else { return };
        *looks += 1;
        if *looks >= REMIND_AFTER {
            *looks = 0;
            tracing::error!("{what} in the files are still broken: older ones are used, and a restart would fail");
        }
    }
}

fn count(what: &'static str, result: &'static str) {
    metrics::counter!("credentials_reloads_total", "what" => what, "result" => result).increment(1);
}

fn contents(what: &'static str, files: &[PathBuf]) -> Result<Vec<Vec<u8>>, CredentialsError> {
    let read = |path: &PathBuf| {
        crate::read(path).map_err(|source| CredentialsError::Read { what, path: path.clone(), source })
    };
    files.iter().map(read).collect()
}

fn sentence(error: &CredentialsError) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// One thread looks at every file of the process. It sleeps otherwise, and ends with the process.
fn watch(watched: Weak<dyn Look>) {
    static ALL: OnceLock<Mutex<Vec<Weak<dyn Look>>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let looking = || {
            loop {
                thread::sleep(LOOK_EVERY);
                let Some(all) = ALL.get() else { continue };
                let alive: Vec<Arc<dyn Look>> = {
                    let mut all = all.lock().expect("nothing panics while it holds this lock");
                    all.retain(|one| one.strong_count() > 0);
                    all.iter().filter_map(Weak::upgrade).collect()
                };
                alive.iter().for_each(|one| one.look());
            }
        };
        if let Err(error) = thread::Builder::new().name("credentials".to_owned()).spawn(looking) {
            tracing::error!(%error, "no thread to watch files with: credentials are not read again until a restart");
        }
        Mutex::new(Vec::new())
    });
    all.lock().expect("nothing panics while it holds this lock").push(watched);
}

// === impl CredentialsError ===

// Not thiserror: the sentence must not repeat its source, which is appended where it is shown.
impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { what, path, .. } => write!(f, "cannot read {what} in {}", path.display()),
            Self::Content { what, paths, why } => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                write!(f, "{what} in {} cannot be used: {why}", paths.join(" and "))
            }
        }
    }
}

impl Error for CredentialsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Content { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    fn open(path: &Path) -> Result<Watched<u32>, CredentialsError> {
        Watched::open("the numbers", vec![path.to_owned()], |contents| {
            let text = String::from_utf8_lossy(&contents[0]);
            text.trim().parse().map_err(|_| "it is no number".to_owned())
        })
    }

    #[test]
    fn a_good_change_is_used_and_a_broken_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        fs::write(&path, "1").unwrap();
        let watched = open(&path).unwrap();
        let clone = watched.clone();
        assert_eq!(*watched.current(), 1);
        for (content, expected) in [("2", 2), ("two", 2), ("", 2), ("3", 3)] {
            fs::write(&path, content).unwrap();
            watched.look();
            assert_eq!(*clone.current(), expected, "{content}");
        }
        fs::remove_file(&path).unwrap();
        watched.look();
        assert_eq!(*clone.current(), 3);
        // As Kubernetes does it: a link that turns elsewhere.
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, "4").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        watched.look();
        assert_eq!(*clone.current(), 4);
    }

    #[test]
    fn a_change_is_noticed_without_being_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "1").unwrap();
        let watched = open(file.path()).unwrap();
        fs::write(file.path(), "2").unwrap();
        for _ in 0..300 {
            if *watched.current() == 2 {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the change was not noticed");
    }

    #[test]
    fn what_cannot_be_used_at_the_start_is_one_sentence() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "one").unwrap();
        let error = open(file.path()).unwrap_err();
        assert_eq!(
            sentence(&error),
            format!("the numbers in {} cannot be used: it is no number", file.path().display())
        );
        let error = open(Path::new("/nowhere/number")).unwrap_err();
        assert!(sentence(&error).starts_with("cannot read the numbers in /nowhere/number: "));
    }
}
