//! Every error that a caller can meet: its name, whether a retry is safe, and what to do. `/docs/errors` is made from it.

/// One error, or one case (`code`) of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) status: u16,
    pub(crate) error: &'static str,
    /// Tells apart cases that share an `error`.
    pub(crate) code: Option<&'static str>,
    pub(crate) title: &'static str,
    /// May the same request with the same key be sent again unchanged?
    pub(crate) retryable: bool,
    /// What happened, for the page.
    pub(crate) happened: &'static str,
    /// What to do, for the page.
    pub(crate) advice: &'static str,
}

/// Declares the kinds and the list of all of them.
macro_rules! catalogue {
    ($($name:ident: $status:literal $error:literal $(/ $code:literal)?, $title:literal, retryable: $retryable:literal,
       $happened:literal, $advice:literal;)+) => {
        $(pub(crate) const $name: Kind = Kind {
            status: $status,
            error: $error,
            code: catalogue!(@code $($code)?),
            title: $title,
            retryable: $retryable,
            happened: $happened,
            advice: $advice,
        };)+

        /// All of them, in the order of the page.
        pub(crate) const ALL: &[&Kind] = &[$(&$name),+];
    };
    (@code) => { None };
    (@code $code:literal) => { Some($code) };
}

catalogue! {
    MISSING_IDEMPOTENCY_KEY: 400 "missing_idempotency_key", "An idempotency key is required", retryable: false,
        "This operation needs an Idempotency-Key header and the request had none. Nothing was executed.",
        "Make a key (a random UUID, say), keep it with the purchase it stands for, and send it with every try of that purchase.";
    INVALID_IDEMPOTENCY_KEY: 400 "invalid_idempotency_key", "The idempotency key is not valid", retryable: false,
        "The Idempotency-Key header is empty, longer than 200 characters, has control characters, is a malformed quoted string or not UTF-8, or stands twice. Nothing was executed.",
        "Send one header line with 1 to 200 characters. Correct the key; a request that was never accepted has used none up.";
    INVALID_REQUEST: 400 "invalid_request", "The request is not valid", retryable: false,
        "The body is not valid JSON, has unknown, missing or duplicate members, or a value of the wrong type or out of range; the detail names the member. Or the HTTP message can be read in two ways (details.reason is ambiguous_message): no Host or two, or a Transfer-Encoding other than chunked. Nothing was executed.",
        "Correct the request and send it under a new Idempotency-Key: what was found wrong only by looking at the catalogue has bound the old one.";
    UNAUTHORIZED: 401 "unauthorized", "Authentication is required", retryable: false,
        "The Authorization header carries no valid API key, or the key has expired. For a webhook: the signature does not match or is older than five minutes.",
        "Send Authorization: Bearer with a valid API key. Keys of one tenant share their idempotency keys, so a retry after a rotation is safe.";
    FORBIDDEN: 403 "forbidden", "Not allowed with this API key", retryable: false,
        "The API key is valid, but this operation is for operators.",
        "Use an operator API key.";
    PAYMENT_DECLINED: 402 "payment_declined", "The payment was declined", retryable: false,
        "The acquirer declined the payment. Nothing was charged. This answer is final for the key and is replayed; the seats stay held until holdExpiresAt.",
        "Pay the same order again with another payment method, under a new Idempotency-Key.";
    NOT_FOUND: 404 "not_found", "There is nothing here", retryable: false,
        "The path, or the order, payment, ticket, ticket type or key that it names, does not exist for this tenant.",
        "Check the id. What belongs to another tenant does not exist for you.";
    METHOD_NOT_ALLOWED: 405 "method_not_allowed", "The method is not allowed here", retryable: false,
        "The path exists, but not with this method; the Allow header lists those that do.",
        "Use one of the methods in Allow.";
    REQUEST_TIMEOUT: 408 "request_timeout", "The body did not arrive in time", retryable: true,
        "The body was not here within 20 seconds of the head of the request. Nothing was executed, and the connection is closed.",
        "Send the same request with the same key again, on another connection.";
    PAYLOAD_TOO_LARGE: 413 "payload_too_large", "The body is too large", retryable: false,
        "The body is larger than 256 KiB, before or after decoding. Nothing was executed.",
        "Send a smaller body.";
    UNSUPPORTED_MEDIA_TYPE: 415 "unsupported_media_type", "The body is in a format that is not read here", retryable: false,
        "The Content-Type is neither application/json nor another JSON type (application/…+json), or names a charset other than UTF-8; or the Content-Encoding is not gzip. A body without a Content-Type is read as JSON. Nothing was executed.",
        "Send application/json in UTF-8, plain or with Content-Encoding: gzip.";
    REQUEST_IN_PROGRESS: 409 "conflict" / "request_in_progress", "The request is in progress", retryable: true,
        "Another request with the same key is being executed, or recovered, right now.",
        "Wait for Retry-After, then send the same request with the same key. Or send Prefer: wait=N to be answered as soon as it is done.";
    OUTCOME_PENDING: 409 "conflict" / "outcome_pending", "The outcome is pending", retryable: true,
        "The payment of this key has been sent and the acquirer has not decided.",
        "Wait for Retry-After, then send the same request with the same key. Never start the purchase anew under another key.";
    PAYMENT_IN_PROGRESS: 409 "conflict" / "payment_in_progress", "Another payment of this order is undecided", retryable: true,
        "A payment under another key is open for this order, so nothing else may decide about it.",
        "Finish the other payment first: repeat its request with its key, or wait for Retry-After and try again.";
    NOT_PENDING: 409 "conflict" / "not_pending", "The order is not pending", retryable: false,
        "The order is paid, cancelled, expired or refunded already. If this answer is replayed, the order was paid otherwise when this payment's approval came, and the payment has been refunded (details.reason is refunded).",
        "Read the order. To buy again, place a new order.";
    NOT_CANCELLABLE: 409 "conflict" / "not_cancellable", "The order cannot be cancelled", retryable: false,
        "The order is cancelled or expired already, a payment of it is undecided, or one of its tickets was checked in.",
        "Read the order. While a payment is undecided, finish that payment first.";
    NOT_PAID: 409 "conflict" / "not_paid", "The ticket is not paid", retryable: false,
        "The order of this ticket is not paid, so it lets nobody in.",
        "Pay or confirm the order first.";
    CAPACITY_IN_USE: 409 "conflict" / "capacity_in_use", "The capacity is in use", retryable: false,
        "The new capacity would be smaller than what is sold and held.",
        "Choose a capacity of at least sold plus held.";
    PAYMENT_REFUNDED: 409 "conflict" / "payment_refunded", "The payment was refunded", retryable: false,
        "A charge was found for this key after the payment had been given up, and has been refunded. This answer is final for the key and is replayed.",
        "Read the order. If it can still be paid, pay it under a new Idempotency-Key.";
    SOLD_OUT: 409 "sold_out", "Not enough seats", retryable: true,
        "There are not enough free seats now. Nothing was held.",
        "Ask for fewer seats under a new key, or repeat the same request later: holds that lapse give seats back.";
    HOLD_NOT_CHARGED: 409 "hold_expired" / "not_charged", "The hold is over", retryable: false,
        "The seats were held until holdExpiresAt and that is over. Nothing is charged: should the charge of an earlier try that was given up still arrive, it is refunded.",
        "Place a new order.";
    HOLD_REFUNDED: 409 "hold_expired" / "refunded", "The hold was over; the payment is refunded", retryable: false,
        "The approval came when the hold was over and the seats were gone. The payment was, or is being, refunded once. This answer is final for the key and is replayed.",
        "Place a new order.";
    IDEMPOTENCY_KEY_REUSE: 422 "idempotency_key_reuse", "The idempotency key was used for another request", retryable: false,
        "The key belongs to a request with another method, path, query or body. Nothing was executed, and the other request is untouched.",
        "One key stands for one purchase. Use a new key for a new purchase, and send exactly the same request when you retry.";
    TOO_LARGE_TO_REPLAY: 201 "response_too_large_to_replay", "The answer is too large to be given again", retryable: false,
        "The request was carried out, and its answer was larger than the 1 MiB that are stored. Later requests with the key get this in place of the body, with the status and the Location of the answer.",
        "Read what was made at Location.";
    RATE_LIMITED: 429 "rate_limited", "Too many requests", retryable: true,
        "This tenant sends more than it may: details.reason says whether it is requests a second (rate), requests in flight (in_flight), or keys whose request is not settled (live_keys). Nothing was executed, and nothing is remembered.",
        "Wait for Retry-After, then send the same request with the same key.";
    INTERNAL: 500 "internal_error", "Something went wrong here", retryable: true,
        "The gateway failed in a way that it should not. What was executed is not known.",
        "Send the same request with the same key; without a key, read the resource first. Report the traceId.";
    IDEMPOTENCY_UNAVAILABLE: 503 "idempotency_unavailable", "The idempotency key could not be reserved", retryable: true,
        "The key could not be reserved, read or released. A request whose key could not be reserved was not executed: it never runs unprotected.",
        "Wait for Retry-After, then send the same request with the same key.";
    NOTHING_HAPPENED: 503 "upstream_unavailable" / "nothing_happened", "The service is not available", retryable: true,
        "The request did not reach the orders service: this try did nothing.",
        "Wait for Retry-After, then send the same request with the same key.";
    IN_DOUBT: 503 "upstream_unavailable" / "in_doubt", "The service is not available", retryable: true,
        "The request was sent on and its outcome could not be learnt in time. It may or may not have happened.",
        "Wait for Retry-After, then send the same request with the same key: it is asked what happened before anything is done. Never start the purchase anew under another key.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_layer::Problem;

    #[test]
    fn problems_of_the_layer_are_as_the_catalogue_has_them() {
        let key_error = idem_core::IdempotencyKey::new("").unwrap_err();
        let json_error = idem_core::json::canonical(b"{").unwrap_err();
        let table = [
            (Problem::missing_key(), MISSING_IDEMPOTENCY_KEY),
            (Problem::invalid_key(key_error), INVALID_IDEMPOTENCY_KEY),
            (Problem::several_keys(), INVALID_IDEMPOTENCY_KEY),
            (Problem::invalid_request("x"), INVALID_REQUEST),
            (Problem::invalid_json(&json_error), INVALID_REQUEST),
            (Problem::request_timeout(), REQUEST_TIMEOUT),
            (Problem::payload_too_large(), PAYLOAD_TOO_LARGE),
            (Problem::unsupported_media_type("x"), UNSUPPORTED_MEDIA_TYPE),
            (Problem::request_in_progress(), REQUEST_IN_PROGRESS),
            (Problem::outcome_pending(), OUTCOME_PENDING),
            (Problem::key_reuse(), IDEMPOTENCY_KEY_REUSE),
            (Problem::idempotency_unavailable(), IDEMPOTENCY_UNAVAILABLE),
            (Problem::nothing_happened(), NOTHING_HAPPENED),
            (Problem::in_doubt(), IN_DOUBT),
        ];
        for (problem, kind) in table {
            let shown = |problem: &Problem| {
                let document: serde_json::Value = serde_json::from_slice(&problem.document("", "")).unwrap();
                ["status", "error", "code", "title", "retryable"].map(|member| document[member].clone())
            };
            assert_eq!(shown(&problem), shown(&kind.problem("")), "{problem:?}");
        }
    }

    #[test]
    fn every_error_has_one_status_and_codes_where_it_has_several_cases() {
        for kind in ALL {
            let cases: Vec<_> = ALL.iter().filter(|other| other.error == kind.error).collect();
            assert!(cases.iter().all(|case| case.status == kind.status), "{}", kind.error);
            assert!(cases.len() == 1 || cases.iter().all(|case| case.code.is_some()), "{}", kind.error);
            let same = cases.iter().filter(|case| case.code == kind.code).count();
            assert_eq!(same, 1, "{} {:?}", kind.error, kind.code);
        }
    }
}
