//! Requests with keys of their own, some of them sent again.

use std::sync::{Arc, Mutex};

use uuid::Uuid;

use crate::{
    generator::{
        connection::Reply,
        script::{Expected, Script},
    },
    stage::system::API_KEY,
};

/// Keys that nobody has used, and now and then the last one once more.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    sent: u64,
    /// Of a hundred requests, so many are the one before sent again.
    retries: f64,
    due: f64,
}

/// Writes the body of the n-th request of a session; none when there is nothing left to ask for.
pub type Body = Arc<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// Where ids of answers are gathered.
pub type Ids = Arc<Mutex<Vec<String>>>;

/// `POST`, each time with a fresh key.
pub struct KeyedPosts {
    /// The path.
    pub path: &'static str,
    /// The keys.
    pub keys: Keys,
    /// The body.
    pub body: Body,
    /// Whether it must be said which answers are replays.
    pub says_replays: bool,
    /// Where the ids of the answers go.
    pub ids: Option<Ids>,
    /// The body that was sent last.
    pub last: String,
}

// === impl Keys ===

impl Keys {
    /// Those of one session, in one run.
    pub fn new(run: Uuid, session: usize, retries: f64) -> Self {
        Self { prefix: format!("{}-{session}", run.simple()), sent: 0, retries, due: 0.0 }
    }

    /// The number of the key to use now, and whether it was used before.
    fn next(&mut self) -> (u64, bool) {
        self.due += self.retries / 100.0;
        if self.due >= 1.0 && self.sent > 0 {
            self.due -= 1.0;
            return (self.sent, true);
        }
        self.sent += 1;
        (self.sent, false)
    }
}

// === impl KeyedPosts ===

impl Script for KeyedPosts {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Expected> {
        let (number, is_repeated) = self.keys.next();
        let key = format!("{}-{number}", self.keys.prefix);
        if !is_repeated {
            self.last = (self.body)(number)?;
        }
        post(request, self.path, Some(&key), "", &self.last);
        Some(Expected { status: 201, is_replay: self.says_replays.then_some(is_repeated) })
    }

    fn heard(&mut self, reply: &Reply<'_>) {
        if let (Some(ids), Some(id)) = (&self.ids, id_of(reply.body)) {
            ids.lock().expect("nobody panics while holding ids").push(id);
        }
    }
}

/// A whole request of the tenant that buys. `more` is header lines, each with its end.
pub fn post(request: &mut Vec<u8>, path: &str, key: Option<&str>, more: &str, body: &str) {
    use std::io::Write as _;
    let _ = write!(request, "POST {path} HTTP/1.1\r\nhost: load\r\nauthorization: Bearer {API_KEY}\r\n");
    if let Some(key) = key {
        let _ = write!(request, "idempotency-key: {key}\r\n");
    }
    let length = body.len();
    let _ = write!(request, "{more}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
}

/// The first id in an answer, which is the one of what was made.
pub fn id_of(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("\"id\":\"")?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_of_a_hundred_requests_are_the_one_before_sent_again() {
        let mut posts = KeyedPosts {
            path: "/v1/orders",
            keys: Keys::new(Uuid::nil(), 3, 5.0),
            body: Arc::new(|number| Some(format!("{{\"n\":{number}}}"))),
            says_replays: true,
            ids: None,
            last: String::new(),
        };
        let mut requests: Vec<(Vec<u8>, bool)> = Vec::new();
        for _ in 0..1000 {
            let mut request = Vec::new();
            let expected = posts.next(&mut request).unwrap();
            requests.push((request, expected.is_replay == Some(true)));
        }
        assert_eq!(requests.iter().filter(|(_, is_replay)| *is_replay).count(), 50);
        let distinct: std::collections::HashSet<_> = requests.iter().map(|(request, _)| request).collect();
        assert_eq!(distinct.len(), 950);
        for pair in requests.windows(2) {
            assert_eq!(pair[1].1, pair[0].0 == pair[1].0, "only what is sent again is a replay");
        }
    }

    #[test]
    fn the_id_of_an_answer_is_the_first_one() {
        assert_eq!(id_of(br#"{"id":"a-1","tickets":[{"id":"b"}]}"#).as_deref(), Some("a-1"));
        assert_eq!(id_of(b"{}"), None);
    }
}
