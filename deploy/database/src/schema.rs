//! What a service keeps in its store: a named, numbered, forward-only list of migrations.

use std::fmt;

use crate::OpenError;

/// The schema of one service.
///
/// Two services may share one Postgres database: applied migrations are recorded per schema name.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The program that owns the schema, such as `orders-service`: it names the records of applied migrations and the
    /// command in the sentence that refuses an older store.
    pub name: &'static str,
    /// Every migration there ever was, numbered from 1 without gaps.
    pub migrations: &'static [Migration],
}

/// One step forward. Never edited once released; the release before must be able to live with its result.
///
/// Each engine has its own text, since types and indexes differ: `BYTEA` and `BLOB`, `TEXT COLLATE "C"` and `TEXT`.
/// Portable column types are `TEXT`, `BIGINT` (numbers, booleans as 0 and 1, instants as microseconds since 1970)
/// and `BYTEA`/`BLOB`. A text may hold several statements; it runs inside a transaction, so nothing like
/// `CREATE INDEX CONCURRENTLY`.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its place in the order, from 1.
    pub number: u32,
    /// A few words for logs and for the table of applied migrations.
    pub name: &'static str,
    /// The text for SQLite.
    pub sqlite: &'static str,
    /// The text for Postgres.
    pub postgres: &'static str,
}

/// What [`Database::migrate`](crate::Database::migrate) did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The schema's name.
    pub schema: &'static str,
    /// The number the store is at now.
    pub version: u32,
    /// The names of the migrations applied by this call, in order; empty when there was nothing to do.
    pub applied: Vec<&'static str>,
}

/// How a store stands to the schema that a program knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing of this schema was ever applied.
    Empty,
    /// Migrations are missing; the store is at this number.
    Old(u32),
    /// Every known migration is there.
    Current(u32),
    /// Every known migration is there, and a later release has added more, up to this number.
    Newer(u32),
}

// === impl Schema ===

impl Schema {
    /// The number this program needs.
    pub fn version(&self) -> u32 {
        self.migrations.last().map_or(0, |last| last.number)
    }

    /// Compares the numbers found in a store with the known ones.
    pub(crate) fn standing(&self, applied: &[u32]) -> Standing {
        let found = applied.iter().copied().max().unwrap_or(0);
        if self.missing(applied).next().is_some() {
            return if applied.is_empty() { Standing::Empty } else { Standing::Old(found) };
        }
        if found > self.version() { Standing::Newer(found) } else { Standing::Current(found) }
    }

    /// The migrations that a store with these numbers still needs, in order.
    pub(crate) fn missing(&self, applied: &[u32]) -> impl Iterator<Item = &'static Migration> {
        self.migrations.iter().filter(move |migration| !applied.contains(&migration.number))
    }

    /// The sentence that refuses an older store.
    pub(crate) fn too_old(&self, found: u32, store: String) -> OpenError {
        OpenError::SchemaOld { store, schema: self.name, found, needed: self.version() }
    }

    /// A release must live with the schema of the next one, so a newer store is only told of.
    pub(crate) fn tell_newer(&self, found: u32, store: &str) {
        let (schema, needed) = (self.name, self.version());
        tracing::warn!(store, schema, found, needed, "the store has the schema of a later release");
    }

    /// Checks the numbering, which a typing slip would turn into a store that can never be opened.
    pub(crate) fn assert_numbered(&self) {
        for (index, migration) in self.migrations.iter().enumerate() {
            assert_eq!(
                migration.number as usize,
                index + 1,
                "migrations of {} must be numbered from 1 without gaps",
                self.name
            );
        }
    }
}

// === impl Migrated ===

impl fmt::Display for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, version, applied } = self;
        if applied.is_empty() {
            return write!(f, "the schema of {schema} is already at {version}");
        }
        write!(f, "the schema of {schema} is now at {version}: applied {}", applied.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema = Schema { name: "things", migrations: &[step(1, "one"), step(2, "two")] };

    const fn step(number: u32, name: &'static str) -> Migration {
        Migration { number, name, sqlite: "", postgres: "" }
    }

    #[test]
    fn standing_names_empty_old_current_and_newer() {
        assert_eq!(SCHEMA.standing(&[]), Standing::Empty);
        assert_eq!(SCHEMA.standing(&[1]), Standing::Old(1));
        assert_eq!(SCHEMA.standing(&[1, 2]), Standing::Current(2));
        assert_eq!(SCHEMA.standing(&[1, 2, 3]), Standing::Newer(3));
    }

    #[test]
    fn a_gap_below_a_newer_number_is_old() {
        assert_eq!(SCHEMA.standing(&[1, 3]), Standing::Old(3));
        assert_eq!(SCHEMA.missing(&[1, 3]).map(|m| m.name).collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn migrated_reads_as_a_sentence() {
        let mut migrated = Migrated { schema: "things", version: 2, applied: vec!["one", "two"] };
        assert_eq!(migrated.to_string(), "the schema of things is now at 2: applied one, two");
        migrated.applied.clear();
        assert_eq!(migrated.to_string(), "the schema of things is already at 2");
    }

    #[test]
    #[should_panic(expected = "numbered from 1 without gaps")]
    fn a_gap_in_the_numbering_is_a_slip() {
        Schema { name: "things", migrations: const { &[step(2, "two")] } }.assert_numbered();
    }
}
