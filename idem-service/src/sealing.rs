//! Stored answers, encrypted at rest with AES-256-GCM when keys are given.
//!
//! What is sealed: headers, body and resource id of an answer. What is not: the key's own name, its state and times, the status and
//! the fingerprint, by which the store works. Scope, key, operation id and status are authenticated with the answer, so a row that
//! was copied to another key, or changed, does not open.
//!
//! The first key of the file seals, every key opens. The file is looked at again while the service runs, so keys are rotated
//! without an interruption: add the new one at the end everywhere, then move it to the front, and take the old one away when the
//! longest retention has passed. Answers from before encryption stay readable.

mod file;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use aes_gcm::aead::{Aead, Generate, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use chassis::secrets;
use idem_core::OperationId;

use crate::store::KeyId;

pub(crate) use self::watch::watch;

/// Random, since replicas share keys and nothing else. The chance that two of 2^32 are the same is about 2^-33 (NIST SP 800-38D
/// allows so many under one key): rotate before that, which at a thousand answers a second is once in three weeks.
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// Names the format, so that another one can follow.
const FORMAT: &[u8] = b"idem answer 1";

/// The keys, or none. Every clone is the same; they may change while the service runs.
#[derive(Clone, Default)]
pub struct Sealing {
    keyring: Arc<RwLock<Option<Arc<Keyring>>>>,
}

/// The keys of one file. The first seals.
pub(crate) struct Keyring {
    keys: Vec<SealingKey>,
}

struct SealingKey {
    id: String,
    cipher: Aes256Gcm,
}

/// Keys that cannot be used. Says which, and never what they are.
#[derive(Debug, thiserror::Error)]
pub enum SealingError {
    /// The file could not be read.
    #[error("cannot read the encryption keys in {}", path.display())]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file does not say what it must.
    #[error("the encryption keys in {} cannot be used: {why}", path.display())]
    Content {
        /// Where it is.
        path: PathBuf,
        /// Which entry, and what is wrong with it.
        why: String,
    },
}

/// A sealed answer that does not open. Nothing is lost, and nothing may be executed in its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unopened {
    #[error(
        "the stored answer is encrypted with the key `{0}`, which --encryption-keys does not have: put the key back; nothing is lost"
    )]
    KeyMissing(String),
    #[error(
        "the stored answer is encrypted with the key `{0}` and does not decrypt: the row was changed or moved, or another key has this id now"
    )]
    Rejected(String),
}

/// Where an answer stands, which it cannot leave.
#[derive(Clone, Copy)]
pub(crate) struct Place<'r> {
    pub(crate) key: &'r KeyId,
    pub(crate) operation_id: OperationId,
    pub(crate) status: u16,
}

/// Which part of an answer: one cannot stand for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Headers and resource id.
    Head,
    Body,
}

// === impl Sealing ===

impl Sealing {
    /// Nothing is sealed, and what is sealed does not open.
    pub fn off() -> Self {
        Self::default()
    }

    /// Reads a file of keys.
    pub fn load(path: &Path) -> Result<Self, SealingError> {
        let text = secrets::read(path).map_err(|source| SealingError::Read { path: path.to_owned(), source })?;
        let sealing = Self::off();
        sealing.replace(Keyring::read(path, &text)?);
        Ok(sealing)
    }

    /// The keys now, for one answer.
    pub(crate) fn keyring(&self) -> Option<Arc<Keyring>> {
        self.keyring.read().expect("nothing panics while it holds this lock").clone()
    }

    fn replace(&self, keyring: Keyring) {
        *self.keyring.write().expect("nothing panics while it holds this lock") = Some(Arc::new(keyring));
    }

    /// Opens one part that was sealed with the key `id`.
    pub(crate) fn open(&self, id: &str, place: Place<'_>, part: Part, sealed: &[u8]) -> Result<Vec<u8>, Unopened> {
        let keyring = self.keyring();
        let key = keyring.as_ref().and_then(|keyring| keyring.keys.iter().find(|key| key.id == id));
        let Some(key) = key else {
            metrics::counter!("idem_sealed_answers_unopened_total", "reason" => "key_missing").increment(1);
            return Err(Unopened::KeyMissing(id.to_owned()));
        };
        key.open(place, part, sealed).ok_or_else(|| {
            metrics::counter!("idem_sealed_answers_unopened_total", "reason" => "rejected").increment(1);
            Unopened::Rejected(id.to_owned())
        })
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("keys", &self.keyring().map_or(0, |keyring| keyring.keys.len())).finish()
    }
}

// === impl Keyring ===

impl Keyring {
    fn read(path: &Path, text: &[u8]) -> Result<Self, SealingError> {
        let keys = file::parse(text).map_err(|why| SealingError::Content { path: path.to_owned(), why })?;
        let keys = keys.into_iter().map(|(id, key)| SealingKey { id, cipher: Aes256Gcm::new(&key.into()) }).collect();
        Ok(Self { keys })
    }

    /// The id of the key that seals.
    pub(crate) fn active_id(&self) -> &str {
        &self.active().id
    }

    fn active(&self) -> &SealingKey {
        self.keys.first().expect("a file without a key is refused")
    }

    fn ids(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.id.as_str()).collect()
    }

    /// Seals one part with the first key: nonce, ciphertext, tag.
    pub(crate) fn seal(&self, place: Place<'_>, part: Part, plain: &[u8]) -> Vec<u8> {
        let nonce = Nonce::generate();
        let payload = Payload { msg: plain, aad: &place.context(part) };
        let ciphertext = self.active().cipher.encrypt(&nonce, payload);
        let ciphertext = ciphertext.expect("an answer is far below the limit of the cipher");
        [nonce.as_slice(), ciphertext.as_slice()].concat()
    }
}

impl SealingKey {
    fn open(&self, place: Place<'_>, part: Part, sealed: &[u8]) -> Option<Vec<u8>> {
        if sealed.len() < NONCE_BYTES + TAG_BYTES {
            return None;
        }
        let (nonce, ciphertext) = sealed.split_at(NONCE_BYTES);
        let payload = Payload { msg: ciphertext, aad: &place.context(part) };
        self.cipher.decrypt(&Nonce::try_from(nonce).ok()?, payload).ok()
    }
}

// === impl Place ===

impl Place<'_> {
    /// What is authenticated with a part: each piece with its length, so that no two places read alike.
    fn context(&self, part: Part) -> Vec<u8> {
        let part: &[u8] = match part {
            Part::Head => b"head",
            Part::Body => b"body",
        };
        let status = self.status.to_be_bytes();
        let pieces: [&[u8]; 6] = [
            FORMAT,
            part,
            &status,
            self.operation_id.0.as_bytes(),
            self.key.scope.as_str().as_bytes(),
            self.key.key.as_str().as_bytes(),
        ];
        pieces
            .iter()
            .flat_map(|piece| (piece.len() as u32).to_be_bytes().into_iter().chain(piece.iter().copied()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
