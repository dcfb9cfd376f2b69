use base64::{Engine as _, engine::general_purpose::STANDARD};
use idem_core::{IdempotencyKey, Scope};
use uuid::Uuid;

use super::*;

/// A file with these keys, each of one byte, 32 times.
pub(super) fn file_of(keys: &[(&str, u8)]) -> String {
    let entries = keys.iter().map(|(id, byte)| format!(r#"{{"id":"{id}","key":"{}"}}"#, STANDARD.encode([*byte; 32])));
    format!("[{}]", entries.collect::<Vec<_>>().join(","))
}

fn sealing_of(keys: &[(&str, u8)]) -> Sealing {
    let sealing = Sealing::off();
    sealing.replace(Keyring::read(Path::new("keys.json"), file_of(keys).as_bytes()).unwrap());
    sealing
}

pub(super) fn place(scope: &str, key: &str) -> KeyId {
    KeyId { scope: Scope::new(scope).unwrap(), key: IdempotencyKey::new(key).unwrap() }
}

fn at(key: &KeyId) -> Place<'_> {
    Place { key, operation_id: OperationId(Uuid::from_u128(7)), status: 201 }
}

pub(super) fn seal(sealing: &Sealing, key: &KeyId) -> Vec<u8> {
    sealing.keyring().unwrap().seal(at(key), Part::Body, b"the answer")
}

pub(super) fn opens(sealing: &Sealing, id: &str, key: &KeyId, sealed: &[u8]) -> bool {
    sealing.open(id, at(key), Part::Body, sealed).is_ok_and(|plain| plain == b"the answer")
}

#[test]
fn an_answer_opens_at_its_own_place_and_nowhere_else() {
    let sealing = sealing_of(&[("k1", 1)]);
    let key = place("rest/a", "order-1");
    let sealed = seal(&sealing, &key);
    assert!(opens(&sealing, "k1", &key, &sealed));
    assert!(!sealed.windows(6).any(|window| window == b"answer"));
    // Another tenant's, another key, and two places that read alike when their pieces are run together.
    for other in [place("rest/b", "order-1"), place("rest/a", "order-2"), place("rest/aorder-", "1")] {
        assert!(!opens(&sealing, "k1", &other, &sealed), "{other:?}");
    }
    let elsewhere = [
        (Place { operation_id: OperationId(Uuid::from_u128(8)), ..at(&key) }, Part::Body),
        (Place { status: 200, ..at(&key) }, Part::Body),
        (at(&key), Part::Head),
    ];
    for (place, part) in elsewhere {
        let refused = sealing.open("k1", place, part, &sealed);
        assert_eq!(refused, Err(Unopened::Rejected("k1".to_owned())));
    }
}

#[test]
fn every_changed_byte_and_every_missing_one_is_noticed() {
    let sealing = sealing_of(&[("k1", 1)]);
    let key = place("rest/a", "order-1");
    let sealed = seal(&sealing, &key);
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 1;
        assert!(!opens(&sealing, "k1", &key, &changed), "byte {place}");
        assert!(!opens(&sealing, "k1", &key, &sealed[..place]), "cut at {place}");
    }
}

#[test]
fn the_first_key_seals_and_a_missing_one_is_named() {
    let key = place("rest/a", "order-1");
    let (old, both) = (sealing_of(&[("old", 1)]), sealing_of(&[("new", 2), ("old", 1)]));
    let (by_old, by_new) = (seal(&old, &key), seal(&both, &key));
    assert!(opens(&both, "old", &key, &by_old) && opens(&both, "new", &key, &by_new));
    let missing = |sealing: &Sealing, id: &str| sealing.open(id, at(&key), Part::Body, &by_new).unwrap_err();
    assert_eq!(missing(&old, "new"), Unopened::KeyMissing("new".to_owned()));
    assert_eq!(missing(&Sealing::off(), "new"), Unopened::KeyMissing("new".to_owned()));
    assert!(missing(&old, "new").to_string().contains("`new`"));
    // Another key under an id that is taken.
    assert!(!opens(&sealing_of(&[("new", 3)]), "new", &key, &by_new));
}

#[test]
fn the_same_answer_is_never_sealed_alike_and_keys_are_never_shown() {
    let sealing = sealing_of(&[("k1", 1)]);
    let key = place("rest/a", "order-1");
    assert_ne!(seal(&sealing, &key), seal(&sealing, &key));
    assert_eq!(format!("{sealing:?}"), "Sealing { keys: 1 }");
}
