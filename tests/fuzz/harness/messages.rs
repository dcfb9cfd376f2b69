//! Messages for every RPC, made from the descriptors, so that an RPC that is added is tried without a line here.

use std::collections::BTreeMap;

use idem_proto::DESCRIPTORS;
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

/// What stands in the `.proto` files.
pub struct Schema {
    messages: BTreeMap<String, DescriptorProto>,
    methods: Vec<Method>,
}

/// One RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// `/idem.v1.IdempotencyService/Reserve`.
    pub path: String,
    /// The full name of its request.
    pub input: String,
}

/// How a message is made.
#[derive(Clone, Copy, Debug)]
pub struct Mood {
    /// Of a hundred fields, how many have a value that nobody sane would send.
    pub hostile: u32,
    /// Of a hundred fields, how many are left out.
    pub absent: u32,
}

/// What a caller knows: values that make sense, by the name of the field (`message.field` or `field`).
#[derive(Default)]
pub struct Vocabulary {
    texts: BTreeMap<&'static str, Vec<String>>,
    numbers: BTreeMap<&'static str, Vec<i64>>,
    omitted: Vec<&'static str>,
}

const HOSTILE_TEXTS: [&[u8]; 18] = [
    b"",
    b" ",
    b"\0",
    b"a\nb",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc3",
    b"*",
    b"a*b",
    b"%",
    b"_",
    b"'; DROP TABLE idem_keys; --",
    b"../../etc/passwd",
    b"{\"a\":1}",
    "é\u{301}\u{202e}🎟".as_bytes(),
    "\u{85}".as_bytes(),
    b"00000000-0000-0000-0000-000000000000",
    b"{7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11}",
];
const HOSTILE_NUMBERS: [i64; 16] = [
    0,
    1,
    -1,
    2,
    499,
    501,
    999_999_999,
    1_000_000_000,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    u32::MAX as i64 + 1,
    315_576_000_000,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN,
];

// === impl Vocabulary ===

impl Vocabulary {
    /// What this text field may be.
    #[must_use]
    pub fn texts<T: Into<String>>(mut self, field: &'static str, texts: impl IntoIterator<Item = T>) -> Self {
        self.texts.insert(field, texts.into_iter().map(Into::into).collect());
        self
    }

    /// What this number may be.
    #[must_use]
    pub fn numbers(mut self, field: &'static str, numbers: impl IntoIterator<Item = i64>) -> Self {
        self.numbers.insert(field, numbers.into_iter().collect());
        self
    }

    /// This field is only there when a hostile value is wanted.
    #[must_use]
    pub fn omit(mut self, field: &'static str) -> Self {
        self.omitted.push(field);
        self
    }
}

// === impl Schema ===

impl Schema {
    /// Reads the descriptors that reflection serves.
    pub fn load() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTORS).expect("the descriptors are compiled in");
        let (mut messages, mut methods) = (BTreeMap::new(), Vec::new());
        for file in &set.file {
            let package = file.package();
            for message in &file.message_type {
                messages.insert(format!(".{package}.{}", message.name()), message.clone());
            }
            for service in &file.service {
                methods.extend(service.method.iter().map(|method| Method {
                    path: format!("/{package}.{}/{}", service.name(), method.name()),
                    input: method.input_type().to_owned(),
                }));
            }
        }
        Self { messages, methods }
    }

    /// The RPCs of services whose name begins so, for example `/idem.v1.`.
    pub fn methods(&self, prefix: &str) -> Vec<Method> {
        self.methods.iter().filter(|method| method.path.starts_with(prefix)).cloned().collect()
    }

    /// A request of this RPC.
    pub fn request(&self, method: &Method, known: &Vocabulary, mood: Mood, rng: &mut StdRng) -> Vec<u8> {
        let mut out = Vec::new();
        self.message(&method.input, known, mood, rng, &mut out);
        out
    }

    fn message(&self, name: &str, known: &Vocabulary, mood: Mood, rng: &mut StdRng, out: &mut Vec<u8>) {
        let message = &self.messages[name];
        // Of the fields of a oneof one is meant; the others appear only out of malice.
        let meant: BTreeMap<i32, i32> = (0..message.oneof_decl.len() as i32)
            .filter_map(|oneof| {
                let of_it: Vec<_> = message.field.iter().filter(|field| field.oneof_index == Some(oneof)).collect();
                of_it.choose(rng).map(|field| (oneof, field.number()))
            })
            .collect();
        for field in &message.field {
            let is_meant = field.oneof_index.is_none_or(|oneof| meant.get(&oneof) == Some(&field.number()));
            let is_omitted = known.omitted.contains(&field.name()) && !rng.random_ratio(mood.hostile, 100);
            if is_omitted
                || rng.random_ratio(mood.absent, 100)
                || (!is_meant && !rng.random_ratio(mood.hostile / 4, 100))
            {
                continue;
            }
            let times = match field.label() {
                Label::Repeated if rng.random_ratio(mood.hostile, 400) => rng.random_range(0..600),
                Label::Repeated => rng.random_range(0..3),
                // Twice is legal on the wire: the last counts, and messages are merged.
                _ if rng.random_ratio(mood.hostile, 200) => 2,
                _ => 1,
            };
            for _ in 0..times {
                self.field(message.name(), field, known, mood, rng, out);
            }
        }
    }

    fn field(
        &self,
        of: &str,
        field: &FieldDescriptorProto,
        known: &Vocabulary,
        mood: Mood,
        rng: &mut StdRng,
        out: &mut Vec<u8>,
    ) {
        let number = field.number() as u32;
        let is_hostile = rng.random_ratio(mood.hostile, 100);
        if is_hostile && rng.random_ratio(1, 12) {
            // Another wire type than the field's.
            return wire(number, rng.random_range(0..6), rng, out);
        }
        match field.r#type() {
            Type::String | Type::Bytes => {
                let text = if is_hostile { hostile_text(rng) } else { known_text(of, field, known, rng) };
                delimited(number, &text, out);
            }
            Type::Message => {
                let mut inner = Vec::new();
                self.message(field.type_name(), known, mood, rng, &mut inner);
                delimited(number, &inner, out);
            }
            _ => {
                let value = if is_hostile { hostile_number(rng) } else { known_number(of, field, known, rng) };
                encode_key(number, WireType::Varint, out);
                encode_varint(value as u64, out);
            }
        }
    }
}

fn known_text(of: &str, field: &FieldDescriptorProto, known: &Vocabulary, rng: &mut StdRng) -> Vec<u8> {
    let qualified = format!("{of}.{}", field.name());
    let texts = known.texts.get(qualified.as_str()).or_else(|| known.texts.get(field.name()));
    match texts.and_then(|texts| texts.choose(rng)) {
        Some(text) => text.clone().into_bytes(),
        None if field.r#type() == Type::Bytes => vec![7; 32],
        None => b"text".to_vec(),
    }
}

fn known_number(of: &str, field: &FieldDescriptorProto, known: &Vocabulary, rng: &mut StdRng) -> i64 {
    let qualified = format!("{of}.{}", field.name());
    let numbers = known.numbers.get(qualified.as_str()).or_else(|| known.numbers.get(field.name()));
    numbers.and_then(|numbers| numbers.choose(rng)).copied().unwrap_or(1)
}

fn hostile_text(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..10) {
        0 => vec![b'a'; rng.random_range(195..210)],
        1 => vec![b'b'; rng.random_range(990..70_000)],
        2 => (0..rng.random_range(0..64)).map(|_| rng.random()).collect(),
        3 => "🎟".repeat(rng.random_range(199..203)).into_bytes(),
        // A page token, or nearly: one byte of layout, a time, a length, a scope, a key.
        4 => format!("01{:016x}0161{}", hostile_number(rng), "62".repeat(rng.random_range(0..3))).into_bytes(),
        _ => HOSTILE_TEXTS.choose(rng).expect("there are some").to_vec(),
    }
}

fn hostile_number(rng: &mut StdRng) -> i64 {
    if rng.random_ratio(1, 4) { rng.random() } else { *HOSTILE_NUMBERS.choose(rng).expect("there are some") }
}

fn delimited(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A field of some wire type, whatever the schema says of it; group marks among them.
fn wire(number: u32, wire_type: u8, rng: &mut StdRng, out: &mut Vec<u8>) {
    encode_varint(u64::from(number << 3 | u32::from(wire_type)), out);
    match wire_type {
        0 => encode_varint(rng.random(), out),
        1 => out.extend(rng.random::<[u8; 8]>()),
        2 => {
            let bytes: Vec<u8> = (0..rng.random_range(0..16)).map(|_| rng.random()).collect();
            encode_varint(bytes.len() as u64, out);
            out.extend(bytes);
        }
        5 => out.extend(rng.random::<[u8; 4]>()),
        _ => {}
    }
}

/// Damages a message the way a broken or hostile sender would.
pub fn mangle(message: &mut Vec<u8>, rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..=message.len());
        match rng.random_range(0..7) {
            0 => message.truncate(at),
            1 if at < message.len() => message[at] ^= 1 << rng.random_range(0..8),
            2 => message.insert(at, rng.random()),
            3 => {
                let tail = message.split_off(at);
                message.extend_from_slice(&tail.clone());
                message.extend(tail);
            }
            // A length beyond the end, up to one that overflows.
            4 => {
                encode_key(rng.random_range(1..12), WireType::LengthDelimited, message);
                encode_varint(
                    [message.len() as u64 + 1, u64::from(u32::MAX), u64::MAX][rng.random_range(0..3)],
                    message,
                );
            }
            // A varint without an end.
            5 => message.extend([0xff; 11]),
            // Groups in groups in groups.
            _ => message.extend([0x0b; 200]),
        }
    }
}
