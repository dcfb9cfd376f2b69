//! Writes the history while it happens.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context as _;

use super::{Event, FILE, History};

/// Appends to the history. Cheap to clone; every clone writes the same one.
#[derive(Clone, Debug)]
pub struct Recorder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    next_number: AtomicU64,
}

#[derive(Debug)]
struct Book {
    events: Vec<Event>,
    file: BufWriter<File>,
    /// A history that could not be written is no proof: told by [`Recorder::flush`].
    failure: Option<std::io::Error>,
}

impl Recorder {
    /// Begins a history in the directory of a run.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let file = File::create(&path).with_context(|| format!("no history can be written to {}", path.display()))?;
        let book = Book { events: Vec::new(), file: BufWriter::new(file), failure: None };
        Ok(Self { inner: Arc::new(Inner { book: Mutex::new(book), next_number: AtomicU64::new(1) }) })
    }

    /// A number that nothing else in this history has.
    pub fn number(&self) -> u64 {
        self.inner.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends an event.
    pub fn record(&self, event: Event) {
        let line = serde_json::to_vec(&event).expect("events have a JSON form");
        let mut book = self.book();
        let written = book.file.write_all(&line).and_then(|()| book.file.write_all(b"\n"));
        if let Err(error) = written {
            book.failure.get_or_insert(error);
        }
        book.events.push(event);
    }

    /// Everything so far, put together.
    pub fn history(&self) -> History {
        let events = self.book().events.clone();
        History::of(events)
    }

    /// Brings the file up to date; fails when any event could not be written.
    pub fn flush(&self) -> anyhow::Result<()> {
        let mut book = self.book();
        book.file.flush()?;
        match book.failure.take() {
            Some(error) => Err(error).context("part of the history could not be written"),
            None => Ok(()),
        }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.inner.book.lock().expect("nobody panics while writing")
    }
}
