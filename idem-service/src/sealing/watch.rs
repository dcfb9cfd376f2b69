//! The file of keys, looked at again while the service runs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chassis::secrets;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Keyring, Sealing};

/// How often. An orchestrator takes longer to bring a changed secret to a container.
const EVERY: Duration = Duration::from_secs(5);

/// Follows the file at `path` for ever. What cannot be used changes nothing, and is said once.
pub(crate) async fn watch(sealing: Sealing, path: PathBuf) {
    let mut seen = None;
    loop {
        sleep(EVERY).await;
        look(&sealing, &path, &mut seen).await;
    }
}

/// What was found last: the digest of the file, or that it could not be read.
type Seen = Option<Result<[u8; 32], std::io::ErrorKind>>;

async fn look(sealing: &Sealing, path: &Path, seen: &mut Seen) {
    let at = path.to_owned();
    let read = spawn_blocking(move || secrets::read(&at)).await.unwrap_or_else(|error| Err(error.into()));
    let found = match &read {
        Ok(text) => Ok(Sha256::digest(text).into()),
        Err(error) => Err(error.kind()),
    };
    if seen.replace(found) == Some(found) {
        return;
    }
    let keyring = match read {
        Ok(text) => Keyring::read(path, &text),
        Err(source) => Err(super::SealingError::Read { path: path.to_owned(), source }),
    };
    match keyring {
        Ok(keyring) => change(sealing, keyring),
        Err(error) => {
            metrics::counter!("idem_encryption_keys_refused_total").increment(1);
            let error = &error as &dyn Error;
            tracing::error!(error, "the changed encryption keys are not used: the former ones go on");
        }
    }
}

fn change(sealing: &Sealing, keyring: Keyring) {
    let before = sealing.keyring();
    let before = before.as_ref().map(|keyring| keyring.ids()).unwrap_or_default();
    if before == keyring.ids() {
        // The first look, or a key that was changed under its id: answers that the former one has sealed would not open.
        sealing.replace(keyring);
        return;
    }
    let gone: Vec<&str> = before.into_iter().filter(|id| !keyring.ids().contains(id)).collect();
    if !gone.is_empty() {
        tracing::warn!(
            keys = gone.join(" "),
            "encryption keys were taken away: answers under them do not open any more"
        );
    }
    tracing::info!(keys = keyring.ids().join(" "), sealing = keyring.active_id(), "the encryption keys have changed");
    sealing.replace(keyring);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file_of, opens, place, seal};
    use super::*;

    #[tokio::test]
    async fn keys_are_rotated_while_the_service_runs_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(&file_of(&[("old", 1)]));
        let sealing = Sealing::load(&path).unwrap();
        let mut seen = None;
        let key = place("a", "k");
        let before = seal(&sealing, &key);

        write(&file_of(&[("new", 2), ("old", 1)]));
        look(&sealing, &path, &mut seen).await;
        assert_eq!(sealing.keyring().unwrap().active_id(), "new");
        let after = seal(&sealing, &key);
        assert!(opens(&sealing, "old", &key, &before) && opens(&sealing, "new", &key, &after));

        for broken in ["", "[]", "[{\"id\":\"new\",\"key\":\"AAAA\"}]"] {
            write(broken);
            look(&sealing, &path, &mut seen).await;
            assert!(opens(&sealing, "old", &key, &before) && opens(&sealing, "new", &key, &after), "{broken}");
        }
        std::fs::remove_file(&path).unwrap();
        look(&sealing, &path, &mut seen).await;
        assert!(opens(&sealing, "new", &key, &after));

        write(&file_of(&[("new", 2)]));
        look(&sealing, &path, &mut seen).await;
        assert!(!opens(&sealing, "old", &key, &before) && opens(&sealing, "new", &key, &after));
    }
}
