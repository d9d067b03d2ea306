//! Certificates that the Secret with the proxy's serving certificate can hold.

/// The certificate of a certificate authority.
pub const ONE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBhTCCASygAwIBAgITJqEUtWEJx5brm/E81qURD/rJiTAKBggqhkjOPQQDAjAY\n\
MRYwFAYDVQQDDA1hdXRob3JpdHktb25lMCAXDTI2MTEyMTIzNDkyNFoYDzIxMjUw\n\
NjE1MjM0OTI0WjAYMRYwFAYDVQQDDA1hdXRob3JpdHktb25lMFkwEwYHKoZIzj0C\n\
AQYIKoZIzj0DAQcDQgAETKfbrrPgbMtrJ5TmWiFgws3HWVWJeGFQbje2PvVfcFRm\n\
e+XpNFu+91PKIof2+KNzGQNzRUy/TV34E7xSvM6ou6NTMFEwHQYDVR0OBBYEFCKf\n\
8wVQd2iVCHu0cXb+iEQ853nPMB8GA1UdIwQYMBaAFCKf8wVQd2iVCHu0cXb+iEQ8\n\
53nPMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgDsoDP10cQKWu\n\
5S+GDKCTkvsRDrs0j/ny46Os3KvQAV4CIHzMahUU1pU7mMvEbi3TDiSyVkYLBFv2\n\
5JVyzwKs+DTN\n\
-----END CERTIFICATE-----\n";

/// The certificate of another certificate authority.
pub const TWO: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBhzCCAS2gAwIBAgIUNLwgw5fu/Ya0eAfEDcVSj+wXns8wCgYIKoZIzj0EAwIw\n\
GDEWMBQGA1UEAwwNYXV0aG9yaXR5LXR3bzAgFw0yNjExMjEyMzQ5MjRaGA8yMTI1\n\
MDYxNTIzNDkyNFowGDEWMBQGA1UEAwwNYXV0aG9yaXR5LXR3bzBZMBMGByqGSM49\n\
AgEGCCqGSM49AwEHA0IABEJwgUF8/uGDFtRGT1ay5OlBIK181CjLa0kdVbrmwjPE\n\
l6lFaVBcA8+GTURsQVCmRLGgJqDcCVjvBiKHy8Q5WkqjUzBRMB0GA1UdDgQWBBTB\n\
bmkiqJQIpSbLj0+MjG6AOcrkgTAfBgNVHSMEGDAWgBTBbmkiqJQIpSbLj0+MjG6A\n\
OcrkgTAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQD2wGDEoRad\n\
M9BUtV5yvnHMO/yDpvBAAgBT3qpg3Ugx4QIgAxlfsQg/JjIvi786+Op7HtfzRXB+\n\
6nMEAVuK9s/tm/w=\n\
-----END CERTIFICATE-----\n";

/// The certificates of two authorities, and a text that is not a valid certificate.
pub const CERTIFICATES: [&str; 3] = [ONE, TWO, "no certificate"];
