//! A row as both engines answer it.

use std::sync::Arc;

use crate::{DatabaseError, FromValue, Value};

/// A row of an answer; columns are read by name or by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

/// What names a column of a [`Row`]: its name, or its place from 0.
pub trait ColumnIndex {
    /// The place of the column, if there is one.
    fn place(&self, columns: &[String]) -> Option<usize>;
    /// How an error calls the column.
    fn label(&self) -> String;
}

// === impl Row ===

impl Row {
    pub(crate) fn new(columns: Arc<[String]>, values: Vec<Value>) -> Self {
        debug_assert_eq!(columns.len(), values.len(), "a row has a value per column");
        Self { columns, values }
    }

    /// Reads a column by name or place; a missing column or another type is [`DatabaseError::Decode`].
    pub fn get<T: FromValue>(&self, column: impl ColumnIndex) -> Result<T, DatabaseError> {
        let value = column.place(&self.columns).and_then(|place| self.values.get(place)).ok_or_else(|| {
            DatabaseError::Decode(format!("no column {} among {}", column.label(), self.columns.join(", ")))
        })?;
        T::from_value(value).ok_or_else(|| {
            let (expected, found) = (T::EXPECTED, value.describe());
            DatabaseError::Decode(format!("column {} is {found}, expected {expected}", column.label()))
        })
    }

    /// The names of the columns, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

// === impl ColumnIndex ===

impl ColumnIndex for usize {
    fn place(&self, columns: &[String]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }

    fn label(&self) -> String {
        self.to_string()
    }
}

impl ColumnIndex for &str {
    fn place(&self, columns: &[String]) -> Option<usize> {
        columns.iter().position(|name| name == self)
    }

    fn label(&self) -> String {
        format!("`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn row() -> Row {
        Row::new(
            Arc::from(["id".to_owned(), "total".to_owned(), "paid_at".to_owned()]),
            vec![Value::Text("o1".into()), Value::Int(2000), Value::Null(Kind::Int)],
        )
    }

    #[test]
    fn columns_are_read_by_name_and_by_place() {
        assert_eq!(row().get::<String>("id").expect("id"), "o1");
        assert_eq!(row().get::<i64>(1).expect("total"), 2000);
        assert_eq!(row().get::<Option<i64>>("paid_at").expect("paid_at"), None);
    }

    #[test]
    fn errors_name_the_column_and_both_types() {
        let missing = row().get::<i64>("sum").expect_err("no such column");
        assert_eq!(missing.to_string(), "the answer was not understood: no column `sum` among id, total, paid_at");
        let null = row().get::<i64>("paid_at").expect_err("null");
        assert_eq!(null.to_string(), "the answer was not understood: column `paid_at` is null, expected a number");
        assert!(row().get::<i64>(3).is_err());
    }
}
