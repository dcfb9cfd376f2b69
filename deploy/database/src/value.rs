//! The values that travel to and from both engines.

use uuid::Uuid;

/// A parameter or a column: the few types that mean the same in both engines.
///
/// Booleans travel as `BIGINT` 0 and 1, UUIDs as their lower-case hyphenated `TEXT`, instants as `BIGINT`
/// microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, of a known type: Postgres wants the type of a parameter even when there is no value.
    Null(Kind),
    /// `TEXT`.
    Text(String),
    /// `BIGINT`.
    Int(i64),
    /// `BYTEA` in Postgres, `BLOB` in SQLite.
    Bytes(Vec<u8>),
}

/// The type of a [`Value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `TEXT`.
    Text,
    /// `BIGINT`.
    Int,
    /// `BYTEA` in Postgres, `BLOB` in SQLite.
    Bytes,
}

/// A Rust type with one column type, which makes its `Option` a parameter too.
pub trait Typed: Into<Value> {
    /// The column type of this Rust type.
    const KIND: Kind;
}

/// A Rust type that can be read out of a column.
pub trait FromValue: Sized {
    /// What the reader hoped for, as an error says it.
    const EXPECTED: &'static str;

    /// Reads the value, or gives it back when it is not of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

/// The parameters of a statement: `params![order_id, venue, quantity]` is a `Vec<Value>`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        {
            let values: ::std::vec::Vec<$crate::Value> = ::std::vec![$($crate::Value::from($value)),*];
            values
        }
    };
}

// === impl Value ===

impl Value {
    /// The type of this value.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Null(kind) => *kind,
            Self::Text(_) => Kind::Text,
            Self::Int(_) => Kind::Int,
            Self::Bytes(_) => Kind::Bytes,
        }
    }

    /// What an error calls this value: its type, never its content, which may be a customer's.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Null(_) => "null",
            Self::Text(_) => "text",
            Self::Int(_) => "a number",
            Self::Bytes(_) => "bytes",
        }
    }
}

macro_rules! typed {
    ($($type:ty => $kind:ident, $value:ident => $into:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Self {
                Self::$kind($into)
            }
        }

        impl Typed for $type {
            const KIND: Kind = Kind::$kind;
        }
    )*};
}

typed! {
    String => Text, value => value;
    &String => Text, value => value.clone();
    &str => Text, value => value.to_owned();
    Uuid => Text, value => value.hyphenated().to_string();
    i64 => Int, value => value;
    i32 => Int, value => value.into();
    u32 => Int, value => value.into();
    u16 => Int, value => value.into();
    bool => Int, value => value.into();
    Vec<u8> => Bytes, value => value;
    &Vec<u8> => Bytes, value => value.clone();
    &[u8] => Bytes, value => value.to_vec();
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(value: [u8; N]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(value: &[u8; N]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl<const N: usize> Typed for [u8; N] {
    const KIND: Kind = Kind::Bytes;
}

impl<const N: usize> Typed for &[u8; N] {
    const KIND: Kind = Kind::Bytes;
}

impl<T: Typed> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null(T::KIND), Into::into)
    }
}

// === impl FromValue ===

impl FromValue for String {
    const EXPECTED: &'static str = "text";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Uuid {
    const EXPECTED: &'static str = "the text of a UUID";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    const EXPECTED: &'static str = "bytes";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl<const N: usize> FromValue for [u8; N] {
    const EXPECTED: &'static str = "bytes of a fixed length";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => bytes.as_slice().try_into().ok(),
            _ => None,
        }
    }
}

impl FromValue for bool {
    const EXPECTED: &'static str = "0 or 1";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            _ => None,
        }
    }
}

macro_rules! from_int {
    ($($type:ty => $expected:literal;)*) => {$(
        impl FromValue for $type {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::Int(number) => Self::try_from(*number).ok(),
                    _ => None,
                }
            }
        }
    )*};
}

from_int! {
    i64 => "a number";
    i32 => "a number of 32 bits";
    u64 => "a number of at least 0";
    u32 => "a number of at least 0 and 32 bits";
    u16 => "a number of at least 0 and 16 bits";
}

impl<T: FromValue> FromValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null(_) => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_turn_rust_into_values_and_nulls_keep_their_type() {
        let id = Uuid::from_u128(1);
        let got = params!["a", id, 7_i64, true, [1_u8, 2], None::<i64>, None::<&str>, Some(false), None::<Vec<u8>>];
        let want = [
            Value::Text("a".into()),
            Value::Text("00000000-0000-0000-0000-000000000001".into()),
            Value::Int(7),
            Value::Int(1),
            Value::Bytes(vec![1, 2]),
            Value::Null(Kind::Int),
            Value::Null(Kind::Text),
            Value::Int(0),
            Value::Null(Kind::Bytes),
        ];
        assert_eq!(got, want);
        assert_eq!(params![], Vec::<Value>::new());
    }

    #[test]
    fn numbers_out_of_range_are_refused_rather_than_wrapped() {
        assert_eq!(u32::from_value(&Value::Int(-1)), None);
        assert_eq!(i32::from_value(&Value::Int(1 << 40)), None);
        assert_eq!(u64::from_value(&Value::Int(1 << 40)), Some(1 << 40));
        assert_eq!(bool::from_value(&Value::Int(2)), None);
    }

    #[test]
    fn null_is_only_read_as_an_option() {
        assert_eq!(i64::from_value(&Value::Null(Kind::Int)), None);
        assert_eq!(Option::<i64>::from_value(&Value::Null(Kind::Text)), Some(None));
        assert_eq!(Option::<i64>::from_value(&Value::Int(3)), Some(Some(3)));
        assert_eq!(Option::<i64>::from_value(&Value::Text("3".into())), None);
    }
}
