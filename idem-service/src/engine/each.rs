//! The first round of several commands as one write: what is guessed about each key is swapped together.
//!
//! Most commands are through with it. The others go on one by one, each from what the first round has shown of its key.

use chassis::deadline::Deadline;
use idem_core::{Answer, Command, Verdict, decide};
use tokio::time::Instant;

use super::{Engine, EngineError, Outcome, Seen, limit};
use crate::store::{KeyId, Swap, SwapRequest};

/// How far the first round has brought a command.
pub struct Begun(Step);

#[allow(clippy::large_enum_variant, reason = "there is one a command, and it is moved, not copied")]
enum Step {
    Through(Outcome),
    Open { start: Option<Seen>, limit: Instant },
    TooLate,
}

// === impl Engine ===

impl Engine {
    /// Begins several commands, none of them a Resolve, as if each had come alone at the same time; whoever asked for them waits until
    /// `deadline`. Each is brought to its end by [`end`](Self::end).
    pub async fn begin_each(&self, asked: &[(&KeyId, &Command)], deadline: Option<Deadline>) -> Vec<Begun> {
        let limit = match limit(deadline) {
            Ok(limit) => limit,
            Err(_) => return asked.iter().map(|_| Begun(Step::TooLate)).collect(),
        };
        let mut steps = Vec::with_capacity(asked.len());
        let (mut writes, mut answers) = (Vec::new(), Vec::new());
        for (place, (key, command)) in asked.iter().enumerate() {
            steps.push(match self.remembered(key, command) {
                Some(outcome) => Step::Through(outcome),
                None => Step::Open { start: None, limit },
            });
            if let (Step::Open { .. }, Some((write, answer))) = (&steps[place], self.guessed_write(key, command, limit))
            {
                writes.push(write);
                answers.push((place, answer));
            }
        }
        // A store that fails may fail for one of them: then each finds out for itself what stands under its key.
        if !writes.is_empty()
            && let Ok(swaps) = self.swap_all(writes, limit).await
        {
            for ((place, answer), swap) in answers.into_iter().zip(swaps) {
                steps[place] = match swap {
                    Swap::Won(snapshot) => Step::Through(Outcome { answer, snapshot }),
                    Swap::Lost(truth) => Step::Open { start: Some(Seen::Truth(truth)), limit },
                };
            }
        }
        steps.into_iter().map(Begun).collect()
    }

    /// Brings a command to its end.
    pub async fn end(&self, begun: Begun, key: &KeyId, command: &Command) -> Result<Outcome, EngineError> {
        match begun.0 {
            Step::Through(outcome) => Ok(outcome),
            Step::TooLate => Err(EngineError::DeadlineOver),
            Step::Open { start, limit } => self.carry_on(key, command, start, limit).await,
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
