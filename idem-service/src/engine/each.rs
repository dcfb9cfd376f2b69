//! The first round of several commands as one write: what is guessed about each key is swapped together.
//!
//! Most commands are through with it. The others go on one by one, each from what the first round has shown of its key.

use chassis::deadline::Deadline;
use idem_core::{Answer, Command, Verdict, decide};
use tokio::time::Instant;

use super::{Engine, EngineError, Outcome, Seen, limit};
use crate::store::{KeyId, Swap, SwapRequest};

/// How far the first round has brought a command.
#[allow(clippy::large_enum_variant, reason = "there is one a command, and it is moved, not copied")]
pub enum Begun {
    /// To its end.
    Through(Outcome),
    /// Not that far; [`Engine::end`] goes on.
    Open(Open),
}

/// A command that goes on alone.
pub struct Open(Step);

#[allow(clippy::large_enum_variant, reason = "there is one a command, and it is moved, not copied")]
enum Step {
    Round { start: Option<Seen>, limit: Instant },
    TooLate,
}

// === impl Engine ===

impl Engine {
    /// Begins several commands, none of them a Resolve, as if each had come alone at the same time; whoever asked for them waits until
    /// `deadline`. Those that are not through are brought to their end by
    /// [`end`](Self::end).
    pub async fn begin_each(&self, asked: &[(&KeyId, &Command)], deadline: Option<Deadline>) -> Vec<Begun> {
        let limit = match limit(deadline) {
            Ok(limit) => limit,
            Err(_) => return asked.iter().map(|_| Begun::Open(Open(Step::TooLate))).collect(),
        };
        let round = |start| Begun::Open(Open(Step::Round { start, limit }));
        let mut begun = Vec::with_capacity(asked.len());
        let (mut writes, mut answers) = (Vec::new(), Vec::new());
        for (place, (key, command)) in asked.iter().enumerate() {
            if let Some(outcome) = self.remembered(key, command) {
                begun.push(Begun::Through(outcome));
                continue;
            }
            begun.push(round(None));
            if let Some((write, answer)) = self.guessed_write(key, command, limit) {
                writes.push(write);
                answers.push((place, answer));
            }
        }
        // A store that fails may fail for one of them: then each finds out for itself what stands under its key.
        if !writes.is_empty()
            && let Ok(swaps) = self.swap_all(writes, limit).await
        {
            for ((place, answer), swap) in answers.into_iter().zip(swaps) {
                begun[place] = match swap {
                    Swap::Won(snapshot) => Begun::Through(Outcome { answer, snapshot }),
                    Swap::Lost(truth) => round(Some(Seen::Truth(truth))),
                };
            }
        }
        begun
    }

    /// Brings a command to its end.
    pub async fn end(&self, open: Open, key: &KeyId, command: &Command) -> Result<Outcome, EngineError> {
        match open.0 {
            Step::TooLate => Err(EngineError::DeadlineOver),
            Step::Round { start, limit } => self.carry_on(key, command, start, limit).await,
        }
    }

    /// The write that a guess about the key leads to, and the answer if it is won.
    fn guessed_write(&self, key: &KeyId, command: &Command, limit: Instant) -> Option<(SwapRequest, Answer)> {
        let seen = self.guess(key, command)?;
        let Verdict::Put(put, answer) = decide(seen.record(), command.clone()) else { return None };
        let write = SwapRequest { key: key.clone(), seen: seen.version(), put: *put, audit: None, until: Some(limit) };
        Some((write, answer))
    }
}
