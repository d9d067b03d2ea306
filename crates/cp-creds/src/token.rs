//! A bearer token: its validation and its expiry.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A bearer token, our own or a synced one. It has no `Display`, and its `Debug` prints nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Validates the bytes of a token, which no error repeats. A token is written into an HTTP header and into JSON:
    /// unprintable bytes would break out of them. Line ends are rejected too, since a token that ends in one is not the
    /// token that was issued.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        ensure!(!bytes.is_empty(), "it is empty");
        let text = String::from_utf8(bytes).ok();
        text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
            .map(Self)
            .context("it contains bytes other than printable ASCII, such as a space or a line end")
    }

    /// The token itself, for a header or the response.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// When the token expires, in whole seconds, if it is a JWT with that claim. A fraction is truncated: it does no
    /// harm if a token seems to expire a little early.
    ///
    /// The signature is not verified, and cannot be: the key is the managed cluster's. The claim only decides when the
    /// caller requests the next token.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "every date in seconds is exact in an f64, and `Timestamp` rejects what saturates"
    )]
    pub fn expiry(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.claims()?.exp?.floor() as i64).ok()
    }

    /// Whom the token is for, if it is a JWT that says so. The signature is not verified.
    #[must_use]
    pub fn audiences(&self) -> Option<Vec<String>> {
        match self.claims()?.aud {
            // A single audience may be a string instead of a list.
            Value::String(audience) => Some(vec![audience]),
            audiences => serde_json::from_value(audiences).ok(),
        }
    }

    fn claims(&self) -> Option<Claims> {
        let parts: Vec<_> = self.0.splitn(4, '.').collect();
        let [_, claims, _] = parts[..] else { return None };
        let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
        serde_json::from_slice(&claims).ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The claims that are read (RFC 7519, section 4.1).
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
    /// An audience in another form counts as none: of a synced token, only the expiry matters.
    #[serde(default)]
    aud: Value,
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::Token;

    fn jwt(claims: &str) -> Token {
        Token::from_bytes(format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)).into_bytes())
            .unwrap()
    }

    #[test]
    fn the_expiry_is_the_claim_in_whole_seconds() {
        let cases = [
            (r#"{"exp":1800000000}"#, Some("2027-01-15T08:00:00Z")),
            (r#"{"iss":"x","exp":1800000000.9,"aud":["y"]}"#, Some("2027-01-15T08:00:00Z")),
            (r#"{"exp":1.8e9}"#, Some("2027-01-15T08:00:00Z")),
            (r#"{"exp":0}"#, Some("1970-01-01T00:00:00Z")),
            (r#"{"exp":-1}"#, Some("1969-12-31T23:59:59Z")),
            (r#"{"exp":null}"#, None),
            (r#"{"exp":"1800000000"}"#, None),
            (r#"{"exp":1e300}"#, None),
            (r#"{"exp":18446744073709551615}"#, None),
            (r#"{"nbf":1}"#, None),
            ("[]", None),
            ("", None),
        ];
        for (claims, expiry) in cases {
            assert_eq!(
                jwt(claims).expiry().map(|at| at.to_string()).as_deref(),
                expiry,
                "{claims}"
            );
        }
    }

    #[test]
    fn what_is_no_jwt_has_no_expiry() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"exp":1}"#);
        for text in
            ["opaque", "a.b", "a.b.c.d", &format!("a.{claims}"), &format!("a.{claims}.b.c"), "..."]
        {
            assert_eq!(Token::from_bytes(text.into()).unwrap().expiry(), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_debug_shows_none(bytes in any::<Vec<u8>>(), claims in "\\PC*") {
            if let Ok(token) = Token::from_bytes(bytes) {
                let _ = token.expiry();
            }
            let token = jwt(&claims);
            let _ = token.expiry();
            prop_assert_eq!(format!("{token:?}"), "Token(..)");
        }

        #[test]
        fn every_second_that_a_date_can_have_is_returned_exactly(
            second in Timestamp::MIN.as_second()..=Timestamp::MAX.as_second(),
            fraction in 0..1000_u16,
        ) {
            let at = Timestamp::from_second(second).unwrap();
            prop_assert_eq!(jwt(&format!(r#"{{"exp":{second}}}"#)).expiry(), Some(at));
            // Truncated, so that the caller requests the next token no later than this one expires.
            let told = jwt(&format!(r#"{{"exp":{second}.{fraction:03}}}"#)).expiry().unwrap();
            prop_assert!((second - 1..=second).contains(&told.as_second()));
        }
    }
}
