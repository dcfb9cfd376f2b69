//! Values on their way to and from Postgres.

use std::error::Error;
use std::sync::Arc;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::failure::Failure;
use crate::{DatabaseError, Kind, Row, Value};

/// A parameter with the type the statement is to take it as.
pub(super) type Typed<'p> = (&'p (dyn ToSql + Sync), Type);

/// Parameters with their types.
pub(super) fn typed(params: &[Value]) -> Vec<Typed<'_>> {
    params.iter().map(|value| (value as &(dyn ToSql + Sync), column_type(value.kind()))).collect()
}

/// An array of the values of one column.
pub(super) struct Array<'r> {
    kind: Kind,
    values: Vec<&'r Value>,
}

/// Rows turned into columns.
pub(super) fn arrays<'r>(columns: &[Kind], rows: &'r [Vec<Value>]) -> Vec<Array<'r>> {
    let array =
        |(place, kind): (usize, &Kind)| Array { kind: *kind, values: rows.iter().map(|row| &row[place]).collect() };
    columns.iter().enumerate().map(array).collect()
}

/// Arrays with their types.
pub(super) fn typed_arrays<'a>(arrays: &'a [Array<'_>]) -> impl Iterator<Item = Typed<'a>> {
    arrays.iter().map(|array| (&array.values as &(dyn ToSql + Sync), array_type(array.kind)))
}

/// The rows of an answer.
pub(super) fn rows(rows: &[tokio_postgres::Row]) -> Result<Vec<Row>, Failure> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let columns: Arc<[String]> = first.columns().iter().map(|column| column.name().to_owned()).collect();
    rows.iter()
        .map(|row| {
            let values = (0..columns.len()).map(|place| value(row, place)).collect::<Result<_, _>>()?;
            Ok(Row::new(columns.clone(), values))
        })
        .collect()
}

fn column_type(kind: Kind) -> Type {
    match kind {
        Kind::Text => Type::TEXT,
        Kind::Int => Type::INT8,
        Kind::Bytes => Type::BYTEA,
    }
}

fn array_type(kind: Kind) -> Type {
    match kind {
        Kind::Text => Type::TEXT_ARRAY,
        Kind::Int => Type::INT8_ARRAY,
        Kind::Bytes => Type::BYTEA_ARRAY,
    }
}

fn value(row: &tokio_postgres::Row, place: usize) -> Result<Value, Failure> {
    let column = &row.columns()[place];
    let read = match *column.type_() {
        Type::INT8 => row.try_get(place).map(|number: Option<i64>| number.into()),
        Type::INT4 => row.try_get(place).map(|number: Option<i32>| number.into()),
        Type::INT2 => row.try_get(place).map(|number: Option<i16>| number.map(i64::from).into()),
        Type::BOOL => row.try_get(place).map(|flag: Option<bool>| flag.into()),
        Type::BYTEA => row.try_get(place).map(|bytes: Option<Vec<u8>>| bytes.into()),
        Type::UUID => row.try_get(place).map(|id: Option<Uuid>| id.into()),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => {
            row.try_get(place).map(|text: Option<String>| text.into())
        }
        ref other => {
            let (name, cast) = (column.name(), "use TEXT, BYTEA or CAST(… AS BIGINT)");
            return Err(Failure::last(DatabaseError::Decode(format!("column `{name}` is of type {other}, {cast}"))));
        }
    };
    read.map_err(Failure::from)
}

impl ToSql for Value {
    fn to_sql(&self, column: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null(_) => Ok(IsNull::Yes),
            Self::Text(text) => text.to_sql(column, out),
            Self::Int(number) => number.to_sql(column, out),
            Self::Bytes(bytes) => bytes.to_sql(column, out),
        }
    }

    fn accepts(column: &Type) -> bool {
        // Statements are prepared with the types of `typed`, so no other ever arrives.
        matches!(*column, Type::TEXT | Type::INT8 | Type::BYTEA)
    }

    to_sql_checked!();
}
