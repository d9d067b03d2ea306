//! Which certificates of a text are published as trust anchors: a table of chains and what each gives.

use hub_core::trust::{BUNDLE_SIZE_LIMIT, TrustBundle, TrustError};

macro_rules! certificate {
    ($name:literal) => {
        ($name, include_str!(concat!("certificates/", $name, ".crt")))
    };
}

/// The certificates of `certificates/`, each with its name.
const CERTIFICATES: [(&str, &str); 16] = [
    certificate!("rsa-root"),
    certificate!("rsa-leaf"),
    certificate!("rsa-leaf-renewed"),
    certificate!("ecdsa-root"),
    certificate!("ecdsa-root-renewed"),
    certificate!("ecdsa-root-by-rsa"),
    certificate!("ecdsa-intermediate"),
    certificate!("ecdsa-leaf"),
    certificate!("expired-root"),
    certificate!("leaf-of-expired"),
    certificate!("self-signed-leaf"),
    certificate!("self-signed-bare"),
    certificate!("namesake-root"),
    certificate!("namesake-leaf"),
    certificate!("version-1-root"),
    certificate!("leaf-of-version-1"),
];

fn pem(name: &str) -> &'static str {
    CERTIFICATES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Concatenated certificates, as in a serving Secret.
fn chain(names: &[&str]) -> String {
    names.iter().map(|name| pem(name)).collect()
}

/// The names of the certificates in a bundle, in the order of [`CERTIFICATES`].
fn names_in(bundle: &TrustBundle) -> Vec<&'static str> {
    let published = bundle.pem().to_string();
    let named: Vec<_> =
        CERTIFICATES.iter().filter(|(_, pem)| published.contains(pem.trim())).collect();
    assert_eq!(bundle.anchors().count(), named.len(), "not every one is known: {published}");
    named.into_iter().map(|(name, _)| *name).collect()
}

fn anchors_of(names: &[&str]) -> Result<Vec<&'static str>, TrustError> {
    TrustBundle::from_pem(chain(names).as_bytes()).map(|bundle| names_in(&bundle))
}

#[test]
fn of_a_chain_the_authorities_are_published_and_never_the_leaf() {
    let root_and_intermediate = &["ecdsa-root", "ecdsa-intermediate"][..];
    for (names, anchors) in [
        (&["rsa-leaf", "rsa-root"][..], &["rsa-root"][..]),
        (&["ecdsa-leaf", "ecdsa-intermediate", "ecdsa-root"], root_and_intermediate),
        (&["ecdsa-leaf", "ecdsa-intermediate"], &["ecdsa-intermediate"]),
        // Odd orders: what a certificate is, its own fields say and not its place.
        (&["rsa-root", "rsa-leaf"], &["rsa-root"]),
        (&["ecdsa-root", "ecdsa-leaf", "ecdsa-intermediate"], root_and_intermediate),
        (&["ecdsa-intermediate", "ecdsa-root", "ecdsa-leaf"], root_and_intermediate),
        // A root and the same key signed by another one are two anchors.
        (
            &["ecdsa-leaf", "ecdsa-intermediate", "ecdsa-root-by-rsa", "ecdsa-root"],
            &["ecdsa-root", "ecdsa-root-by-rsa", "ecdsa-intermediate"],
        ),
        (&["ecdsa-leaf", "ecdsa-root-by-rsa"], &["ecdsa-root-by-rsa"]),
        (&["ecdsa-root", "ecdsa-root-renewed"], &["ecdsa-root", "ecdsa-root-renewed"]),
        // Two chains of two key types in one text.
        (&["rsa-leaf", "rsa-root", "ecdsa-leaf", "ecdsa-root"], &["rsa-root", "ecdsa-root"]),
        // Whether it is valid now is for the client to decide, who has the time of the connection.
        (&["leaf-of-expired", "expired-root"], &["expired-root"]),
        // Leaf and issuer of the same subject.
        (&["namesake-leaf", "namesake-root"], &["namesake-root"]),
        // A lone authority, as in a CA file.
        (&["rsa-root"], &["rsa-root"]),
        (&["self-signed-leaf", "rsa-root"], &["rsa-root"]),
    ] {
        assert_eq!(anchors_of(names).as_deref(), Ok(anchors), "{names:?}");
    }
}

#[test]
fn without_an_authority_what_signed_itself_is_published() {
    for (names, anchors) in [
        (&["self-signed-leaf"][..], &["self-signed-leaf"][..]),
        (&["self-signed-bare"], &["self-signed-bare"]),
        (&["self-signed-leaf", "self-signed-bare"], &["self-signed-leaf", "self-signed-bare"]),
        // A certificate of version 1 cannot say that it is a CA, and clients take it for one as an anchor.
        (&["version-1-root"], &["version-1-root"]),
        (&["leaf-of-version-1", "version-1-root"], &["version-1-root"]),
    ] {
        assert_eq!(anchors_of(names).as_deref(), Ok(anchors), "{names:?}");
    }
}

#[test]
fn a_leaf_without_its_issuer_is_an_error() {
    for names in [
        &["rsa-leaf"][..],
        &["ecdsa-leaf"],
        &["leaf-of-expired"],
        &["rsa-leaf", "ecdsa-leaf"],
        &["leaf-of-version-1"],
        // Issued by an authority of the same name: the subject alone does not make it self-signed.
        &["namesake-leaf"],
    ] {
        assert_eq!(anchors_of(names), Err(TrustError::NoAuthority), "{names:?}");
    }
}

#[test]
fn the_text_is_a_function_of_the_set_of_anchors() {
    let read = |names: &[&str]| TrustBundle::from_pem(chain(names).as_bytes()).unwrap();
    let one = read(&["ecdsa-leaf", "ecdsa-intermediate", "ecdsa-root"]);
    let other =
        read(&["ecdsa-root", "ecdsa-intermediate", "ecdsa-root", "ecdsa-root", "ecdsa-leaf"]);
    assert_eq!(one, other);
    let text = one.pem().to_string();
    let count = text.matches("-----BEGIN CERTIFICATE-----\n").count();
    assert_eq!(count, 2, "each anchor once: {text}");
    assert!(text.ends_with("-----END CERTIFICATE-----\n") && !text.contains('\r'), "{text:?}");
    let again = TrustBundle::from_published(text.as_bytes()).unwrap();
    assert_eq!(**again.pem(), *text, "what was published reads as what it is");
}

#[test]
fn text_around_the_blocks_is_skipped() {
    let root = pem("rsa-root");
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
               -----END PRIVATE KEY-----\n";
    let wanted = TrustBundle::from_pem(root.as_bytes()).unwrap();
    let printed = format!("Certificate:\n    Version: 3 (0x2)\n{root}\n# the end\n");
    for (what, text) in [
        ("line ends of Windows", root.replace('\n', "\r\n")),
        ("no newline at the end", root.trim_end().to_owned()),
        ("a printed certificate", printed),
        ("a key before it", format!("{key}{root}")),
        ("a key behind it", format!("{root}{key}")),
        ("blank lines", format!("\n\n{root}\n\n")),
    ] {
        let bundle = TrustBundle::from_pem(text.as_bytes())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(bundle, wanted, "{what}");
        assert!(!bundle.pem().contains("PRIVATE"), "{what}");
    }
}

#[test]
fn bytes_without_a_certificate_are_an_error_and_never_an_empty_bundle() {
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQA=\n-----END PRIVATE KEY-----\n";
    let request = key.replace("PRIVATE KEY", "CERTIFICATE REQUEST");
    for text in ["", " \n\t\n", "garbage", "no CERTIFICATE here", key, &request] {
        let read = TrustBundle::from_pem(text.as_bytes());
        assert_eq!(read, Err(TrustError::NoCertificate), "{text:?}");
        assert!(TrustBundle::from_published(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn broken_certificates_are_an_error_even_beside_a_good_one() {
    let root = pem("rsa-root");
    let middle = root.len() / 2;
    let half = &root[..middle];
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let block = |content: &str| format!("{begin}\n{content}\n{end}\n");
    let in_der = root.lines().filter(|line| !line.starts_with('-')).collect::<String>();
    for (what, broken) in [
        ("cut off", half.to_owned()),
        ("an empty block", block("")),
        ("no base64", block("!!!!")),
        ("base64 of something else", block("bm8gY2VydGlmaWNhdGU=")),
        ("a certificate cut short", block(&in_der[..200])),
        ("ends as something else", root.replace("END CERTIFICATE", "END PRIVATE KEY")),
    ] {
        let after_another = format!("{}{broken}", pem("ecdsa-root"));
        for text in [broken.clone(), after_another, format!("{broken}{root}")] {
            use TrustError::{MalformedCertificate, MalformedPem};
            let error = TrustBundle::from_pem(text.as_bytes()).expect_err(what);
            let is_malformed = matches!(error, MalformedPem(_) | MalformedCertificate { .. });
            assert!(is_malformed, "{what}: {error}");
            assert!(TrustBundle::from_published(text.as_bytes()).is_err(), "{what}");
        }
    }
    assert!(TrustBundle::from_pem(b"\xff\xfe\x00-----BEGIN").is_err(), "not even text");
}

#[test]
fn an_error_names_the_certificate_and_quotes_no_key() {
    let broken = "-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n";
    let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END PRIVATE KEY-----\n";
    let text = format!("{key}{}{broken}", pem("rsa-root"));
    let error = TrustBundle::from_pem(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("certificate number 2"), "{error}");
    assert!(!error.contains("c2Vj") && !error.contains("secret"), "{error}");
}

/// A bundle as large as one asks for: the length of a certificate's text does not depend on its content, so
/// that copies of one with other serial numbers do.
pub fn large(numbers: std::ops::Range<u16>) -> String {
    let certificate = pem("ecdsa-root");
    let block = ::pem::parse(certificate).unwrap();
    // The serial number is the first INTEGER of eight bytes.
    let place =
        block.contents().windows(2).position(|bytes| matches!(bytes, [0x02, 0x08 | 0x09])).unwrap()
            + 4;
    let config = ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF);
    let numbered = |number: u16| {
        let mut der = block.contents().to_vec();
        der[place..place + 2].copy_from_slice(&number.to_be_bytes());
        ::pem::encode_config(&::pem::Pem::new("CERTIFICATE", der), config)
    };
    numbers.map(numbered).collect()
}

#[test]
fn a_bundle_stays_under_64_kib() {
    let length = pem("ecdsa-root").len();
    let most = u16::try_from((BUNDLE_SIZE_LIMIT - 1) / length).unwrap();
    let fits = TrustBundle::from_pem(large(0..most).as_bytes()).unwrap();
    assert_eq!(fits.anchors().count(), usize::from(most));
    assert!(fits.pem().len() < BUNDLE_SIZE_LIMIT);

    let text = large(0..most + 1);
    let too_large = TrustError::TooLarge { certificates: usize::from(most) + 1, size: text.len() };
    assert_eq!(TrustBundle::from_pem(text.as_bytes()), Err(too_large.clone()));
    assert_eq!(TrustBundle::from_published(text.as_bytes()), Err(too_large.clone()));
    let one_more = TrustBundle::from_pem(pem("rsa-root").as_bytes()).unwrap();
    assert!(matches!(fits.with(one_more.anchors()), Err(TrustError::TooLarge { .. })));

    // The published anchors count: duplicates are one.
    let same = pem("rsa-root").repeat(100);
    assert_eq!(TrustBundle::from_pem(same.as_bytes()).unwrap().anchors().count(), 1);
}

#[test]
fn the_first_anchor_to_expire_is_reported() {
    let expiry = |names: &[&str]| {
        let bundle = TrustBundle::from_pem(chain(names).as_bytes()).unwrap();
        bundle.first_expiry().unwrap().to_string()
    };
    assert_eq!(expiry(&["expired-root"]), "2020-01-01T00:00:00Z");
    assert_eq!(expiry(&["rsa-root", "expired-root", "ecdsa-root"]), "2020-01-01T00:00:00Z");
    // The expiry of a leaf is irrelevant.
    assert_eq!(expiry(&["leaf-of-expired", "rsa-root"]), "9999-12-30T22:00:00.999999999Z");
}
