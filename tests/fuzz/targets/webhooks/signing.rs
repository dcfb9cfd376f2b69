//! Signatures made and judged apart from the product, and everything that can be done to a delivery that was in order.

use std::time::UNIX_EPOCH;

use chassis::clock;
use fuzz::Text;
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::{collection::vec, prelude::*, sample::Index, sample::select};
use sha2::Sha256;

/// What the orders service of a test believes.
pub const SECRET: &[u8] = b"whsec_demo";

pub fn now() -> i64 {
    clock::wall().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn mac(secret: &[u8], time: &str, body: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(&[time.as_bytes(), b".", body].concat());
    mac.finalize().into_bytes().to_vec()
}

pub fn sign(secret: &[u8], time: &str, body: &[u8]) -> String {
    format!("t={time},v1={}", hex::encode(mac(secret, time, body)))
}

/// What a delivery with these header lines should be answered: 200, 401 or 400.
pub fn reading(lines: &[Text], body: &[u8]) -> u16 {
    let [line] = lines else { return 400 };
    let text = String::from_utf8_lossy(&line.0).trim_matches([' ', '\t']).to_owned();
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let Some(fields) = fields.iter().map(|field| field.split_once('=')).collect::<Option<Vec<_>>>() else { return 400 };
    let of =
        |name: &str| fields.iter().filter(|(given, _)| *given == name).map(|(_, value)| *value).collect::<Vec<_>>();
    let (times, macs) = (of("t"), of("v1"));
    let [time] = times[..] else { return 400 };
    let is_number = !time.is_empty() && time.chars().all(|c| c.is_ascii_digit()) && time.parse::<u64>().is_ok();
    let Some(macs) = macs.iter().map(|mac| hex::decode(mac).ok()).collect::<Option<Vec<_>>>() else { return 400 };
    if !is_number || macs.is_empty() {
        return 400;
    }
    let right = mac(SECRET, time, body);
    let is_fresh = time.parse::<i64>().is_ok_and(|time| (now() - time).abs() <= 300);
    if macs.contains(&right) && is_fresh { 200 } else { 401 }
}

/// What is done to a delivery that was in order.
#[derive(Clone, Debug)]
pub enum Change {
    Nothing,
    BodyBit(Index, u8),
    BodyInsert(Index, u8),
    BodyCut(Index),
    /// Another secret.
    Secret(Vec<u8>),
    /// Signed so many seconds from now.
    At(i64),
    /// The time in the header is another than was signed.
    OtherTime(i64),
    HeaderByte(Index, u8),
    HeaderInsert(Index, u8),
    HeaderCut(Index),
    Before(&'static str),
    After(&'static str),
    UpperCase,
    ShorterMac(usize),
    SecondLine(&'static str),
    NoLine,
}

pub fn change() -> impl Strategy<Value = Change> {
    let extra = select(vec![
        ",v2=later",
        ", v1=00",
        ",v1=",
        ",t=1",
        ",",
        " ",
        "\t",
        ",=",
        ",v1",
        "v2=x,",
        "v1=00, ",
        "t=2,",
        ",T=1",
        ",v1 =00",
        "\u{a0}",
        ",x=\u{ff}",
    ]);
    let visible = || prop_oneof![4 => 0x20..=0x7eu8, 1 => 0x80..=0xffu8];
    prop_oneof![
        2 => Just(Change::Nothing),
        2 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::BodyBit(at, bit)),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::BodyInsert(at, byte)),
        1 => any::<Index>().prop_map(Change::BodyCut),
        1 => vec(any::<u8>(), 0..70).prop_map(Change::Secret),
        2 => select(vec![-1_000_000_000, -310, -290, -1, 1, 290, 310, 1_000_000_000]).prop_map(Change::At),
        2 => select(vec![-310, -1, 1, 310]).prop_map(Change::OtherTime),
        3 => (any::<Index>(), visible()).prop_map(|(at, byte)| Change::HeaderByte(at, byte)),
        3 => (any::<Index>(), visible()).prop_map(|(at, byte)| Change::HeaderInsert(at, byte)),
        1 => any::<Index>().prop_map(Change::HeaderCut),
        2 => extra.clone().prop_map(Change::Before),
        2 => extra.clone().prop_map(Change::After),
        1 => Just(Change::UpperCase),
        1 => (0..64usize).prop_map(Change::ShorterMac),
        1 => extra.prop_map(Change::SecondLine),
        1 => Just(Change::NoLine),
    ]
}

pub fn apply(change: &Change, body: &mut Vec<u8>) -> Vec<Text> {
    let time = now();
    let mut header = match change {
        Change::Secret(secret) => sign(secret, &time.to_string(), body),
        Change::At(offset) => sign(SECRET, &(time + offset).to_string(), body),
        Change::OtherTime(offset) => {
            sign(SECRET, &time.to_string(), body).replace(&time.to_string(), &(time + offset).to_string())
        }
        _ => sign(SECRET, &time.to_string(), body),
    }
    .into_bytes();
    match change {
        Change::BodyBit(at, bit) => {
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
        }
        Change::BodyInsert(at, byte) => body.insert(at.index(body.len() + 1), *byte),
        Change::BodyCut(at) => body.truncate(at.index(body.len())),
        Change::HeaderByte(at, byte) => {
            let at = at.index(header.len());
            header[at] = *byte;
        }
        Change::HeaderInsert(at, byte) => header.insert(at.index(header.len() + 1), *byte),
        Change::HeaderCut(at) => header.truncate(at.index(header.len())),
        Change::Before(text) => header = [text.as_bytes(), &header].concat(),
        Change::After(text) => header.extend_from_slice(text.as_bytes()),
        Change::UpperCase => {
            header =
                String::from_utf8(header).unwrap().to_uppercase().replace("T=", "t=").replace("V1", "v1").into_bytes()
        }
        Change::ShorterMac(by) => header.truncate(header.len() - by),
        Change::SecondLine(text) => return vec![Text(header), Text(text.as_bytes().to_vec())],
        Change::NoLine => return Vec::new(),
        Change::Nothing | Change::Secret(_) | Change::At(_) | Change::OtherTime(_) => {}
    }
    vec![Text(header)]
}
