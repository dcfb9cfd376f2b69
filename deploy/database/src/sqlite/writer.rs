//! The one thread that writes: whatever waits shares a commit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use tracing::{Span, warn};

use super::failure;
use super::file::HeldFile;
use crate::DatabaseError;
use crate::error::chain;

/// Jobs that may wait; beyond that callers wait for a place, which slows them down instead of growing without bound.
const QUEUE: usize = 1024;

/// Jobs that share a commit at most, so that the first one is not kept waiting by an endless stream behind it.
const GROUP: usize = 256;

/// Hands jobs to the writer thread. The thread ends, and closes the file, when the last clone is gone.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

/// A piece of work in the queue.
trait Job: Send {
    /// Runs inside a savepoint of the open transaction; the answer is kept until the transaction's fate is known.
    fn run(self: Box<Self>, connection: &mut Connection) -> Answer;
    /// Answers without running.
    fn refuse(self: Box<Self>, error: DatabaseError);
}

/// Tells the caller, once the fate of the shared commit is known.
type Answer = Box<dyn FnOnce(Result<(), DatabaseError>) + Send>;

/// A job's own answer, or the panic that it ended in.
type Reply<T, E> = Result<Result<T, E>, Box<dyn Any + Send>>;

struct Work<F, T, E> {
    job: F,
    span: Span,
    reply: oneshot::Sender<Reply<T, E>>,
}

// === impl Writer ===

impl Writer {
    /// Starts the thread on a connection of its own; it keeps the file held until it has closed it.
    pub(super) fn start(connection: Connection, file: HeldFile) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        thread::Builder::new().name("sqlite-writer".into()).spawn(move || {
            serve(connection, queue);
            drop(file);
        })?;
        Ok(Self { jobs })
    }

    /// Runs `job` on the thread and waits for the commit that carries it.
    pub(super) async fn run<T, E>(
        &self,
        patience: Duration,
        job: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work = Work { job, span: Span::current(), reply };
        if self.jobs.send_timeout(Box::new(work), patience).await.is_err() {
            return Err(DatabaseError::unavailable("the SQLite writer has too much to do, or has stopped").into());
        }
        match answer.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(DatabaseError::unavailable("the SQLite writer has stopped").into()),
        }
    }
}

// === impl Work ===

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnOnce(&mut Connection) -> Result<T, E> + Send,
    T: Send + 'static,
    E: From<DatabaseError> + Send + 'static,
{
    fn run(self: Box<Self>, connection: &mut Connection) -> Answer {
        let Self { job, span, reply } = *self;
        // Nobody waits any more: a call past its deadline starts no work.
        if reply.is_closed() {
            return Box::new(|_| ());
        }
        let outcome = span.in_scope(|| in_savepoint(connection, job));
        Box::new(move |fate| {
            // An `Err` of the job waits for the commit too: it may rest on what an earlier job of the group wrote.
            let answer = match (outcome, fate) {
                (Err(panic), _) => Err(panic),
                (Ok(result), Ok(())) => Ok(result),
                (Ok(_), Err(error)) => Ok(Err(error.into())),
            };
            // The caller may have gone meanwhile, which changes nothing.
            let _ = reply.send(answer);
        })
    }

    fn refuse(self: Box<Self>, error: DatabaseError) {
        let _ = self.reply.send(Ok(Err(error.into())));
    }
}

/// Runs a job so that its failure or panic undoes only its own changes.
fn in_savepoint<T, E: From<DatabaseError>>(
    connection: &mut Connection,
    job: impl FnOnce(&mut Connection) -> Result<T, E>,
) -> Reply<T, E> {
    if let Err(error) = cached(connection, "SAVEPOINT job") {
        return Ok(Err(DatabaseError::from(error).into()));
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| job(connection)));
    if connection.is_autocommit() {
        // The engine has rolled the whole transaction back (disk full, I/O error); `serve_group` sees it too.
        return outcome;
    }
    if matches!(outcome, Ok(Ok(_))) {
        return match cached(connection, "RELEASE job") {
            Ok(()) => outcome,
            Err(error) => {
                roll_back(connection);
                Ok(Err(DatabaseError::from(error).into()))
            }
        };
    }
    let undone = cached(connection, "ROLLBACK TO job").and_then(|()| cached(connection, "RELEASE job"));
    if undone.is_err() {
        // What cannot be undone alone is undone with the whole group.
        roll_back(connection);
    }
    outcome
}

// === the thread ===

fn serve(mut connection: Connection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP {
            match queue.try_recv() {
                Ok(job) => group.push(job),
                Err(_) => break,
            }
        }
        serve_group(&mut connection, group);
    }
}

/// Runs the jobs in one transaction, commits once, answers all.
fn serve_group(connection: &mut Connection, jobs: Vec<Box<dyn Job>>) {
    let mut answers: Vec<Answer> = Vec::with_capacity(jobs.len());
    for job in jobs {
        if connection.is_autocommit()
            && let Err(error) = cached(connection, "BEGIN IMMEDIATE")
        {
            warn!(error = chain(&error), "SQLite cannot begin a transaction");
            job.refuse(error.into());
            continue;
        }
        answers.push(job.run(connection));
        if connection.is_autocommit() {
            warn!("SQLite has rolled back {} transactions that shared a commit", answers.len());
            let error = DatabaseError::unavailable("SQLite rolled the transaction back");
            answers.drain(..).for_each(|answer| answer(Err(error.clone())));
        }
    }
    if answers.is_empty() {
        return;
    }
    let fate = cached(connection, "COMMIT").map_err(|error| {
        warn!(error = chain(&error), "SQLite cannot commit");
        roll_back(connection);
        failure::of_commit(error)
    });
    answers.into_iter().for_each(|answer| answer(fate.clone()));
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = cached(connection, "ROLLBACK")
    {
        warn!(error = chain(&error), "SQLite cannot roll back");
    }
}

fn cached(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(drop)
}
