//! The statements of a [`Tx`](crate::Tx) on SQLite.

use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql};

use crate::failure::Failure;
use crate::{DatabaseError, Kind, Row, Value};

/// Runs a statement without rows; returns how many rows it touched.
pub(crate) fn execute(connection: &Connection, sql: &str, params: &[Value]) -> Result<u64, Failure> {
    let mut statement = prepare(connection, sql, params)?;
    Ok(statement.raw_execute()? as u64)
}

/// Runs a statement and collects its rows.
pub(crate) fn query(connection: &Connection, sql: &str, params: &[Value]) -> Result<Vec<Row>, Failure> {
    let mut statement = prepare(connection, sql, params)?;
    let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.raw_query();
    let mut answer = Vec::new();
    while let Some(row) = rows.next()? {
        let values = columns.iter().enumerate().map(|(place, name)| value(name, row.get_ref(place)?));
        answer.push(Row::new(columns.clone(), values.collect::<Result<_, Failure>>()?));
    }
    Ok(answer)
}

fn prepare<'c>(connection: &'c Connection, sql: &str, params: &[Value]) -> Result<CachedStatement<'c>, Failure> {
    let mut statement = connection.prepare_cached(without_row_lock(sql))?;
    let count = statement.parameter_count();
    if count != params.len() {
        return Err(refused(format!("the statement has {count} parameters and was given {}", params.len())));
    }
    // SQLite reads `$2` as a parameter *named* `$2` and numbers names by appearance, so they are bound by name.
    for index in 1..=count {
        let place = statement.parameter_name(index).and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok());
        let param = place.and_then(|place| params.get(place.checked_sub(1)?)).ok_or_else(|| {
            refused(format!("parameter {:?} is none of $1…${count}", statement.parameter_name(index)))
        })?;
        statement.raw_bind_parameter(index, param)?;
    }
    Ok(statement)
}

/// Postgres locks the rows it is going to change; here the whole transaction is alone, and the words are unknown.
fn without_row_lock(sql: &str) -> &str {
    let text = sql.trim_end();
    let text = text.strip_suffix("SKIP LOCKED").map_or(text, str::trim_end);
    text.strip_suffix("FOR UPDATE").unwrap_or(sql)
}

fn refused(sentence: String) -> Failure {
    Failure::last(DatabaseError::statement(sentence))
}

fn value(column: &str, value: ValueRef<'_>) -> Result<Value, Failure> {
    match value {
        ValueRef::Null => Ok(Value::Null(Kind::Text)),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        ValueRef::Blob(bytes) => Ok(Value::Bytes(bytes.to_vec())),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Ok(Value::Text(text.to_owned())),
            Err(_) => Err(undecoded(format!("column `{column}` is text that is not UTF-8"))),
        },
        ValueRef::Real(_) => {
            Err(undecoded(format!("column `{column}` is a floating-point number, use CAST(… AS BIGINT)")))
        }
    }
}

fn undecoded(sentence: String) -> Failure {
    Failure::last(DatabaseError::Decode(sentence))
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null(_) => ValueRef::Null,
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;

    fn one(sql: &str, params: &[Value]) -> Result<Row, DatabaseError> {
        let connection = Connection::open_in_memory().unwrap();
        let rows = query(&connection, sql, params).map_err(|failure| failure.error)?;
        Ok(rows.into_iter().next().expect("a row"))
    }

    #[test]
    fn parameters_go_by_their_number_not_by_their_appearance() {
        let row = one("SELECT $2 || $1 AS a, $1 AS b, '$3' AS c", &params!["x", "y"]).unwrap();
        assert_eq!(row.get::<String>("a").unwrap(), "yx");
        assert_eq!(row.get::<String>("b").unwrap(), "x");
        assert_eq!(row.get::<String>("c").unwrap(), "$3");
    }

    #[test]
    fn a_wrong_number_of_parameters_is_refused() {
        for (sql, params) in [("SELECT $1", params![]), ("SELECT $1", params![1, 2]), ("SELECT $2", params![1])] {
            assert!(matches!(one(sql, &params), Err(DatabaseError::Statement(_))), "{sql}");
        }
    }

    #[test]
    fn row_locks_are_left_out_at_the_end_only() {
        assert_eq!(without_row_lock("SELECT 1\n  FOR UPDATE "), "SELECT 1\n  ");
        assert_eq!(without_row_lock("SELECT 1 FOR UPDATE SKIP LOCKED"), "SELECT 1 ");
        assert_eq!(without_row_lock("SELECT ' FOR UPDATE'"), "SELECT ' FOR UPDATE'");
        assert_eq!(without_row_lock("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn fractions_are_refused_with_the_cast_to_write() {
        let error = one("SELECT 1.5 AS total", &params![]).unwrap_err();
        assert!(error.to_string().contains("column `total`") && error.to_string().contains("CAST"), "{error}");
    }
}
