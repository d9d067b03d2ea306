//! What the Secret of the authority contains, and when it is renewed.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_core::trust::TrustBundle;
use hub_runtime::observe::serving_certificate::CertificateError;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Certificates begin a day early, since clocks of clients may be behind.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// How long an authority is valid.
const AUTHORITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long before its expiry an authority gets a successor.
const SUCCEEDED: SignedDuration = SignedDuration::from_hours(120 * 24);
/// How long a successor is published before it issues, counted from the beginning of the day of its creation, so at
/// least a day. Profiles show it, and clients read it, in much less.
const ANNOUNCED: SignedDuration = SignedDuration::from_hours(2 * 24);
/// How long a serving certificate is valid, and how long before its expiry it is renewed.
const SERVING: SignedDuration = SignedDuration::from_hours(30 * 24);
const RENEWED: SignedDuration = SignedDuration::from_hours(10 * 24);

/// An authority: its certificate and its key.
struct Keys {
    certificate: String,
    key: KeyPair,
    not_after: Timestamp,
}

/// The content of the Secret.
#[derive(Default)]
pub(super) struct State {
    current: Option<Keys>,
    /// The successor, which is already published.
    next: Option<Keys>,
    /// The certificate of the predecessor, which is published while what it has issued can be valid.
    former: Option<String>,
}

/// A serving certificate.
pub(super) struct Issued {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    not_after: Timestamp,
    /// The certificate of the authority that has issued it.
    issuer: String,
}

impl Issued {
    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

impl Keys {
    fn new(now: Timestamp) -> Result<Self, CertificateError> {
        let key = KeyPair::generate().map_err(|error| CertificateError::issue(&error))?;
        let mut params = params_of(&key);
        let not_after = limit(&mut params, now - DAY, now + AUTHORITY)?;
        let certificate =
            params.self_signed(&key).map_err(|error| CertificateError::issue(&error))?;
        let (certificate, _) = one(&certificate.pem()).ok_or_else(|| {
            CertificateError::Issue("its own certificate is unreadable".to_owned())
        })?;
        Ok(Self { certificate, key, not_after })
    }

    /// Reads a certificate and its key; `None` if they are not usable. They belong together if the certificate contains
    /// the common name that is derived from the key. None is valid for longer than those that are made here: whoever could
    /// write the Secret once would be an authority for ever.
    fn read(data: &BTreeMap<String, ByteString>, name: &str, now: Timestamp) -> Option<Self> {
        let text =
            |suffix: &str| String::from_utf8(data.get(&format!("{name}.{suffix}"))?.0.clone()).ok();
        let key = KeyPair::from_pem(&text("key")?).ok()?;
        let (certificate, not_after) =
            one(&text("crt")?).filter(|(_, expiry)| *expiry <= now + AUTHORITY + DAY)?;
        let name = common_name(&key);
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
        let has_name = der.windows(name.len()).any(|part| part == name.as_bytes());
        has_name.then_some(Self { certificate, key, not_after })
    }
}

impl State {
    /// Reads the data of the Secret. What cannot be used counts as absent, and is replaced.
    pub(super) fn read(data: &BTreeMap<String, ByteString>, now: Timestamp) -> Self {
        let (current, next) = (Keys::read(data, "tls", now), Keys::read(data, "next", now));
        let former =
            data.get("former.crt").and_then(|text| one(std::str::from_utf8(&text.0).ok()?));
        // One that could have been before the current one.
        let is_older = |(_, expiry): &(String, Timestamp)| {
            current.as_ref().is_some_and(|keys| *expiry < keys.not_after)
        };
        Self { former: former.filter(is_older).map(|(former, _)| former), current, next }
    }

    /// The data to merge into the Secret; what it no longer contains is null.
    pub(super) fn data(&self) -> Value {
        let certificate =
            |keys: &Option<Keys>| keys.as_ref().map(|keys| STANDARD.encode(&keys.certificate));
        let key = |keys: &Option<Keys>| {
            keys.as_ref().map(|keys| STANDARD.encode(keys.key.serialize_pem()))
        };
        json!({
            "tls.crt": certificate(&self.current), "tls.key": key(&self.current),
            "next.crt": certificate(&self.next), "next.key": key(&self.next),
            "former.crt": self.former.as_ref().map(|text| STANDARD.encode(text)),
        })
    }

    /// The state after the renewals that are due at this time, and whether any was due.
    pub(super) fn renewed(self, now: Timestamp) -> Result<(Self, bool), CertificateError> {
        let Self { current, next, former } = self;
        let is_valid = |keys: &Keys| now < keys.not_after;
        let is_announced =
            next.as_ref().is_some_and(|next| now >= next.not_after - AUTHORITY + ANNOUNCED);
        match current.filter(is_valid) {
            // No serving certificate is trusted any more, so a new authority need not be published before it issues.
            None => {
                let current = next.filter(is_valid).map_or_else(|| Keys::new(now), Ok)?;
                Ok((Self { current: Some(current), next: None, former: None }, true))
            }
            Some(current) if is_announced => {
                Ok((Self { current: next, next: None, former: Some(current.certificate) }, true))
            }
            Some(current) if next.is_none() && now >= current.not_after - SUCCEEDED => {
                let next = Some(Keys::new(now)?);
                Ok((Self { current: Some(current), next, former }, true))
            }
            current => Ok((Self { current, next, former }, false)),
        }
    }

    /// The certificates of the authorities that have issued or will issue, in PEM.
    ///
    /// Whoever could write the Secret once could name another predecessor. So one is published only in the month after
    /// the current authority began to issue, in which serving certificates of the predecessor are valid.
    pub(super) fn published(&self, now: Timestamp) -> String {
        let authorities = [&self.current, &self.next].into_iter().flatten();
        let is_recent = |keys: &Keys| now < keys.not_after - AUTHORITY + ANNOUNCED + SERVING;
        let former =
            self.former.as_deref().filter(|_| self.current.as_ref().is_some_and(is_recent));
        authorities.map(|keys| keys.certificate.as_str()).chain(former).collect()
    }

    /// Whether a serving certificate must be replaced: it expires soon, or another authority issues now.
    pub(super) fn replaces(&self, issued: &Issued, now: Timestamp) -> bool {
        let is_current =
            self.current.as_ref().is_some_and(|keys| keys.certificate == issued.issuer);
        !is_current || now >= issued.not_after - RENEWED
    }

    /// A serving certificate for these DNS names.
    pub(super) fn issue(
        &self,
        names: &[String],
        now: Timestamp,
    ) -> Result<Issued, CertificateError> {
        let current = self.current.as_ref();
        let current =
            current.ok_or_else(|| CertificateError::Issue("there is no authority".to_owned()))?;
        let failed = |error: rcgen::Error| CertificateError::issue(&error);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
        let not_after = limit(&mut params, now - DAY, current.not_after.min(now + SERVING))?;
        if let Some(name) = names.first() {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params.use_authority_key_identifier_extension = true;
        let of_issuer = params_of(&current.key);
        let issuer = Issuer::from_params(&of_issuer, &current.key);
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?.der().clone();
        Ok(Issued { certificate, key, not_after, issuer: current.certificate.clone() })
    }
}

/// The parameters of the certificate of an authority with this key, without the validity.
fn params_of(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common_name(key));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A name that no other key has, so that clients find the issuer of a certificate among several.
fn common_name(key: &KeyPair) -> String {
    let digest = Sha256::digest(key.public_key_raw());
    let short = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    format!("hub-addons-user-server-{short:016x}")
}

/// Sets the validity, from the beginning of the first of these days to the beginning of the second; returns its end.
fn limit(
    params: &mut CertificateParams,
    from: Timestamp,
    until: Timestamp,
) -> Result<Timestamp, CertificateError> {
    let midnight = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (midnight(from), midnight(until));
    let end = params.not_after.unix_timestamp();
    Timestamp::from_second(end).map_err(|error| CertificateError::issue(&error))
}

/// The only certificate in a text, and nothing else that is there, with its expiry: clients trust all that is published.
fn one(text: &str) -> Option<(String, Timestamp)> {
    let bundle = TrustBundle::from_published(text.as_bytes()).ok()?;
    let expiry = bundle.first_expiry().filter(|_| bundle.anchors().count() == 1)?;
    Some((bundle.pem().to_string(), expiry))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{RootCertStore, crypto::ring};

    use super::*;

    const NAMES: [&str; 2] = ["user-server.addons", "user-server.addons.svc"];

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    /// What a Secret contains after a patch of its data.
    fn stored(state: &State, now: Timestamp) -> State {
        let data: BTreeMap<String, Option<ByteString>> =
            serde_json::from_value(state.data()).unwrap();
        State::read(&data.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(), now)
    }

    /// The state at a time, after what is due; and whether anything was.
    fn at(state: State, now: Timestamp) -> (State, bool) {
        let (state, is_new) = state.renewed(now).unwrap();
        (stored(&state, now), is_new)
    }

    fn issued(state: &State, now: Timestamp) -> Issued {
        state.issue(&NAMES.map(str::to_owned), now).unwrap()
    }

    /// Whether a client that trusts this bundle accepts a certificate at a time.
    fn is_trusted(bundle: &str, issued: &Issued, now: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        roots
            .add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten());
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let now =
            UnixTime::since_unix_epoch(now.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs());
        NAMES.iter().all(|name| {
            let name = ServerName::try_from(*name).unwrap();
            verifier.verify_server_cert(&issued.certificate, &[], &name, &[], now).is_ok()
        })
    }

    #[test]
    fn a_secret_without_content_gets_an_authority_and_no_other_while_that_is_valid() {
        let (state, is_new) = at(State::default(), start());
        assert!(is_new);
        let serving = issued(&state, start());
        assert!(is_trusted(&state.published(start()), &serving, start()));
        let (same, is_new) = at(stored(&state, start() + DAY), start() + DAY);
        assert!(!is_new && same.published(start()) == state.published(start()));
        assert!(!same.replaces(&serving, start() + DAY));
    }

    #[test]
    fn a_client_with_yesterdays_bundle_trusts_every_certificate_of_three_years() {
        let (mut state, _) = at(State::default(), start());
        let mut serving = issued(&state, start());
        let mut yesterday = state.published(start());
        let (mut authorities, mut certificates) = (1, 1);
        for day in 1..3 * 365 {
            let now = start() + DAY * day;
            let (now_state, is_new) = at(state, now);
            state = now_state;
            authorities += u32::from(is_new);
            if state.replaces(&serving, now) {
                serving = issued(&state, now);
                certificates += 1;
            }
            assert!(
                is_trusted(&yesterday, &serving, now),
                "day {day}: a client has read the bundle a day ago"
            );
            yesterday = state.published(now);
            assert!(is_trusted(&yesterday, &serving, now), "day {day}");
            assert!(yesterday.matches("BEGIN CERTIFICATE").count() <= 3);
        }
        assert!(
            (5..=9).contains(&authorities),
            "each of four successors takes two writes: {authorities}"
        );
        assert!((40..70).contains(&certificates), "{certificates}");
    }

    #[test]
    fn the_former_authority_is_published_for_as_long_as_what_it_has_issued_is_valid() {
        let (state, _) = at(State::default(), start());
        let (announced, _) = at(state, start() + AUTHORITY - SUCCEEDED);
        let now = start() + AUTHORITY - SUCCEEDED + ANNOUNCED;
        let last = issued(&announced, now);
        let (state, is_new) = at(announced, now);
        assert!(is_new && state.replaces(&last, now));
        let end = now + SERVING;
        let is_published = |at| is_trusted(&state.published(at), &last, now);
        assert!(last.not_after <= end && is_published(end - DAY) && !is_published(end));
    }

    #[test]
    fn what_cannot_be_used_is_replaced_and_never_served() {
        let (state, _) = at(State::default(), start());
        let (other, _) = at(State::default(), start());
        let (later, _) = at(State::default(), start() + AUTHORITY);
        let data = |state: &State| -> BTreeMap<String, ByteString> {
            let data: BTreeMap<String, Option<ByteString>> =
                serde_json::from_value(state.data()).unwrap();
            data.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
        };
        let (good, theirs) = (data(&state), data(&other));
        let with = |key: &str, value: &ByteString| {
            let mut data = good.clone();
            data.insert(key.to_owned(), value.clone());
            State::read(&data, start())
        };
        let nonsense = ByteString(b"nonsense".to_vec());
        let both = ByteString([&*good["tls.crt"].0, &theirs["tls.crt"].0].concat());
        for (what, state) in [
            ("a key that is not one", with("tls.key", &nonsense)),
            ("a certificate that is not one", with("tls.crt", &nonsense)),
            ("the key of another authority", with("tls.key", &theirs["tls.key"])),
            ("another authority beside it", with("tls.crt", &both)),
            ("an authority for longer than a year", State::read(&data(&later), start())),
        ] {
            let (renewed, is_new) = at(state, start());
            assert!(is_new, "{what}");
            assert!(
                is_trusted(&renewed.published(start()), &issued(&renewed, start()), start()),
                "{what}"
            );
        }
        // Neither can have been before this one.
        for planted in [&data(&other)["tls.crt"], &nonsense] {
            assert_eq!(with("former.crt", planted).published(start()), state.published(start()));
        }
        let (renewed, is_new) = at(state, start() + AUTHORITY);
        assert!(is_new, "it has expired");
        let now = start() + AUTHORITY;
        assert!(is_trusted(&renewed.published(now), &issued(&renewed, now), now));
    }
}
