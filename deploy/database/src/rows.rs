//! Many rows in one statement: `{rows}` in its text stands for all of them.

use crate::failure::Failure;
use crate::{DatabaseError, Kind, Value};

/// What stands for the rows in the text of a statement.
const PLACE: &str = "{rows}";

/// The types of the columns: those of the first row, which all others must have too.
pub(crate) fn columns(sql: &str, rows: &[Vec<Value>]) -> Result<Vec<Kind>, Failure> {
    let of = |row: &Vec<Value>| row.iter().map(Value::kind).collect::<Vec<_>>();
    let columns = rows.first().map(of).unwrap_or_default();
    let is_alike = |row: &Vec<Value>| row.iter().map(Value::kind).eq(columns.iter().copied());
    match rows.iter().position(|row| !is_alike(row)) {
        Some(at) => Err(refused(format!("row {at} is not of the columns of the first, {columns:?}"))),
        None if columns.is_empty() || !sql.contains(PLACE) => Err(refused("the statement takes no rows".into())),
        None => Ok(columns),
    }
}

/// The text for Postgres: the rows travel as an array a column, so there is one statement whatever their number. `before` parameters
/// come first.
pub(crate) fn as_arrays(sql: &str, before: usize, columns: &[Kind]) -> String {
    let array = |(place, kind): (usize, &Kind)| format!("${}::{}[]", before + place + 1, type_name(*kind));
    let arrays = columns.iter().enumerate().map(array).collect::<Vec<_>>().join(", ");
    sql.replace(PLACE, &format!("SELECT * FROM unnest({arrays})"))
}

/// The text for SQLite: one row at a time, since there is no way to save, and again one statement whatever their number.
pub(crate) fn as_one(sql: &str, before: usize, columns: &[Kind]) -> String {
    let places = (0..columns.len()).map(|place| format!("${}", before + place + 1)).collect::<Vec<_>>().join(", ");
    sql.replace(PLACE, &format!("VALUES ({places})"))
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Int => "bigint",
        Kind::Bytes => "bytea",
    }
}

fn refused(sentence: String) -> Failure {
    Failure::last(DatabaseError::statement(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;

    #[test]
    fn the_text_does_not_depend_on_the_number_of_rows() {
        let columns = [Kind::Text, Kind::Int, Kind::Bytes];
        assert_eq!(
            as_arrays("INSERT INTO t {rows} -- $1", 1, &columns),
            "INSERT INTO t SELECT * FROM unnest($2::text[], $3::bigint[], $4::bytea[]) -- $1"
        );
        assert_eq!(as_one("INSERT INTO t {rows} -- $1", 1, &columns), "INSERT INTO t VALUES ($2, $3, $4) -- $1");
    }

    #[test]
    fn rows_of_different_columns_are_refused() {
        let rows = [params!["a", 1], params![None::<&str>, None::<i64>]];
        assert_eq!(columns("{rows}", &rows).unwrap(), [Kind::Text, Kind::Int]);
        for rows in [&[params!["a", 1], params![1, "a"]][..], &[params!["a"], params!["a", 1]], &[params![]], &[]] {
            assert!(columns("{rows}", rows).is_err(), "{rows:?}");
        }
        assert!(columns("no place for them", &rows).is_err());
    }
}
