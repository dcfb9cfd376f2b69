//! Reads either store: several statements in one transaction, so that their answers fit together.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use chassis::tasks::Tasks;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls, types::Type};

use crate::edge::{DatabaseOf, StoreAccess};

/// A reader that takes longer than this has met a fault, and tries again.
const PATIENCE: Duration = Duration::from_secs(20);

/// The databases behind the services. Keeps its connections, and makes new ones when they are lost.
pub struct Database {
    access: StoreAccess,
    idem: Option<Client>,
    orders: Option<Client>,
    tasks: Tasks,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A row, read from left to right.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    values: std::collections::VecDeque<Value>,
}

// === impl Database ===

impl Database {
    /// For the stores of a campaign.
    pub fn new(access: StoreAccess) -> Self {
        Self { access, idem: None, orders: None, tasks: Tasks::new() }
    }

    /// Which dialect is spoken.
    pub fn is_postgres(&self) -> bool {
        matches!(self.access, StoreAccess::Postgres(_))
    }

    /// The answers of all statements, as of one moment.
    pub async fn read(&mut self, of: DatabaseOf, statements: &'static [&'static str]) -> anyhow::Result<Vec<Vec<Row>>> {
        match timeout(PATIENCE, self.read_patiently(of, statements)).await {
            Ok(Ok(answers)) => Ok(answers),
            failed => {
                *self.connection(of) = None;
                failed.context("the store did not answer in time")?
            }
        }
    }

    async fn read_patiently(
        &mut self,
        of: DatabaseOf,
        statements: &'static [&'static str],
    ) -> anyhow::Result<Vec<Vec<Row>>> {
        match &self.access {
            StoreAccess::Postgres(primary) => {
                let url = primary.url(of);
                if self.connection(of).as_ref().is_none_or(Client::is_closed) {
                    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
                    drop(self.tasks.spawn("ledger connection", connection));
                    *self.connection(of) = Some(client);
                }
                let client = self.connection(of).as_mut().context("it was just connected")?;
                read_postgres(client, statements).await
            }
            StoreAccess::Sqlite { idem, orders } => {
                let path = match of {
                    DatabaseOf::Idem => idem.clone(),
                    DatabaseOf::Orders => orders.clone(),
                };
                self.tasks.spawn_blocking("read sqlite", move || read_sqlite(&path, statements)).await?
            }
        }
    }

    fn connection(&mut self, of: DatabaseOf) -> &mut Option<Client> {
        match of {
            DatabaseOf::Idem => &mut self.idem,
            DatabaseOf::Orders => &mut self.orders,
        }
    }
}

async fn read_postgres(client: &mut Client, statements: &[&str]) -> anyhow::Result<Vec<Vec<Row>>> {
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let mut answers = Vec::with_capacity(statements.len());
    for statement in statements {
        let rows = transaction.query(*statement, &[]).await?;
        answers.push(rows.iter().map(of_postgres).collect::<anyhow::Result<_>>()?);
    }
    transaction.commit().await?;
    Ok(answers)
}

fn of_postgres(row: &tokio_postgres::Row) -> anyhow::Result<Row> {
    let value = |(at, column): (usize, &tokio_postgres::Column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.map_or(Value::Null, Value::Number),
            Type::TEXT => row.try_get::<_, Option<String>>(at)?.map_or(Value::Null, Value::Text),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at)?.map_or(Value::Null, Value::Bytes),
            ref other => bail!("column {} is {other}: cast it", column.name()),
        })
    };
    Ok(Row { values: row.columns().iter().enumerate().map(value).collect::<anyhow::Result<_>>()? })
}

fn read_sqlite(path: &PathBuf, statements: &[&str]) -> anyhow::Result<Vec<Vec<Row>>> {
    use rusqlite::OpenFlags;
    let mut connection = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .with_context(|| format!("{} cannot be opened", path.display()))?;
    connection.busy_timeout(PATIENCE / 4)?;
    let transaction = connection.transaction()?;
    let mut answers = Vec::with_capacity(statements.len());
    for statement in statements {
        let mut prepared = transaction.prepare(statement)?;
        let columns = prepared.column_count();
        let rows = prepared.query_map([], |row| {
            let values = (0..columns).map(|at| row.get_ref(at).map(of_sqlite)).collect::<Result<_, _>>()?;
            Ok(Row { values })
        })?;
        answers.push(rows.collect::<Result<_, _>>()?);
    }
    Ok(answers)
}

fn of_sqlite(value: rusqlite::types::ValueRef<'_>) -> Value {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Number(number),
        ValueRef::Real(number) => Value::Text(number.to_string()),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

// === impl Row ===

impl Row {
    /// The next value, a number.
    pub fn number(&mut self) -> anyhow::Result<i64> {
        self.maybe_number()?.context("a number is missing")
    }

    /// The next value, a number if it is there.
    pub fn maybe_number(&mut self) -> anyhow::Result<Option<i64>> {
        match self.values.pop_front() {
            Some(Value::Number(number)) => Ok(Some(number)),
            Some(Value::Null) => Ok(None),
            other => bail!("{other:?} is no number"),
        }
    }

    /// The next value, a text.
    pub fn text(&mut self) -> anyhow::Result<String> {
        self.maybe_text()?.context("a text is missing")
    }

    /// The next value, a text if it is there; bytes are read as one.
    pub fn maybe_text(&mut self) -> anyhow::Result<Option<String>> {
        match self.values.pop_front() {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Bytes(bytes)) => Ok(Some(String::from_utf8(bytes)?)),
            Some(Value::Null) => Ok(None),
            other => bail!("{other:?} is no text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn statements_of_one_reading_see_one_moment_and_every_kind_of_value() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orders.db");
        let writer = rusqlite::Connection::open(&path).unwrap();
        writer
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n, s, b); INSERT INTO t VALUES (7, 'x', x'6869'), (NULL, NULL, NULL)")
            .unwrap();
        let mut database = Database::new(StoreAccess::Sqlite { idem: path.clone(), orders: path });
        let answers = database.read(DatabaseOf::Orders, &["SELECT n, s, b FROM t", "SELECT count(*) FROM t"]).await;
        let mut answers = answers.unwrap();
        assert_eq!(answers.pop().unwrap()[0].number().unwrap(), 2);
        let [full, empty] = &mut answers.pop().unwrap()[..] else { panic!("two rows") };
        assert_eq!((full.number().unwrap(), full.text().unwrap(), full.text().unwrap()), (7, "x".into(), "hi".into()));
        assert_eq!((empty.maybe_number().unwrap(), empty.maybe_text().unwrap()), (None, None));
        assert!(empty.text().is_err());
        assert!(database.read(DatabaseOf::Orders, &["SELECT n FROM nowhere"]).await.is_err());
    }
}
