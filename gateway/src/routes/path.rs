//! What stands in a path, decoded. What cannot be the name of anything is not found.

use crate::error::{Failure, catalogue};
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use idem_layer::Problem;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

/// A path segment, percent-decoded.
pub(super) struct Segment(pub(super) String);

/// A path segment that is the UUID of an order, payment or ticket.
pub(super) struct Id(pub(super) String);

/// Whether the id in `/v1/<collection>/<id>/<verb>` can be one, before a key is reserved for it.
pub(super) fn check(parts: &Parts) -> Result<(), Problem> {
    let segment = parts.uri.path().split('/').nth(3).unwrap_or_default();
    id(&percent_decode_str(segment).decode_utf8_lossy()).map(|_| ())
}

/// The id in `text` as it is kept, or nothing under it.
pub(super) fn id(text: &str) -> Result<String, Problem> {
    // Other spellings of a UUID (braces, URN, no hyphens) are not how we write ids.
    match Uuid::try_parse(text) {
        Ok(uuid) if text.len() == uuid::fmt::Hyphenated::LENGTH => Ok(uuid.hyphenated().to_string()),
        _ => Err(catalogue::NOT_FOUND.problem("there is nothing under this id")),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(segment)) => Ok(Self(segment)),
            // Not UTF-8.
            Err(_) => Err(catalogue::NOT_FOUND.problem("the path cannot be read").into()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Segment(segment) = Segment::from_request_parts(parts, state).await?;
        Ok(Self(id(&segment)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_segment_after_the_collection() {
        let check = |path: &str| check(&http::Request::get(path).body(()).unwrap().into_parts().0).is_ok();
        assert!(check("/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11/cancel?x=1"));
        assert!(check("/v1/tickets/%37b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11/check-in"));
        assert!(!check("/v1/orders/x/cancel") && !check("/v1/orders/%ff/cancel") && !check("/v1/orders"));
    }

    #[test]
    fn only_hyphenated_uuids_are_ids() {
        let written = "7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11";
        assert_eq!(id(written).unwrap(), written);
        assert_eq!(id(&written.to_uppercase()).unwrap(), written);
        let braced = format!("{{{written}}}");
        for other in [
            "",
            "1",
            "nope",
            &written.replace('-', ""),
            &braced,
            &format!("urn:uuid:{written}"),
            &format!("{written}0"),
        ] {
            assert!(id(other).is_err(), "{other}");
        }
    }
}
