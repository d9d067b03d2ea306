//! One GET over HTTP/1.1: renders the request and parses the response.
//!
//! Only the body of `200 OK` is read; every other status is an error, so redirects are not followed and no message of
//! the server reaches a log. Head and body are limited in size.

use std::io::{BufRead, BufReader, ErrorKind, Read};

use anyhow::{Context as _, Error, Result, anyhow, bail};

use crate::cli;
use crate::server_url::ServerUrl;
use crate::token::Token;

/// Longest head of a response, in bytes.
const HEAD_MAX_LENGTH: usize = 32 * 1024;

/// Most header lines of a response.
const HEADERS_MAX: usize = 64;

/// Longest body, in bytes. A Secret has at most 1 MiB of data, which base64 makes a third longer, and metadata.
const BODY_MAX_LENGTH: u64 = 2 * 1024 * 1024;

/// Longest line before a chunk: a hexadecimal length, and extensions that no server uses.
const CHUNK_LINE_MAX_LENGTH: u64 = 256;

const TOO_LARGE: &str = "the response is larger than a Secret can be";

const BROKEN: &str = "the connection broke";

/// The response is not HTTP, or ambiguous HTTP.
fn not_http(why: &str) -> Error {
    anyhow!("the response is not valid HTTP/1.1: {why}")
}

/// What a status that is not 200 means here.
fn meaning(code: u16) -> &'static str {
    match code {
        300..400 => ": redirects are not followed",
        400 => ": check that the address is that of an API server with https",
        401 => ": the API server rejects the credentials of this pod or kubeconfig",
        403 => ": forbidden; grant the consumer's ServiceAccount get on this Secret",
        404 => {
            ": not found; it is synced if the ManagedServiceAccount has the label \
             authentication.open-cluster-management.io/sync-to-clusterprofile: \"true\" and a \
             ManagedClusterSetBinding grants the cluster to this namespace"
        }
        429 => ": the API server is overloaded",
        500..600 => ": the API server reports an internal error",
        _ => "",
    }
}

/// The request, which contains our token.
#[must_use]
pub fn request(url: &ServerUrl, path: &str, token: Option<&Token>) -> Vec<u8> {
    let mut head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\nUser-Agent: cp-creds/{}\r\nConnection: close\r\n",
        url.path_of(path),
        url.authority(),
        cli::VERSION,
    );
    if let Some(token) = token {
        head.push_str("Authorization: Bearer ");
        head.push_str(token.expose());
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// The body of the response, if its status is `200 OK`.
pub fn read_answer(stream: impl Read) -> Result<Vec<u8>> {
    let mut stream = BufReader::with_capacity(4096, stream);
    loop {
        let head = read_head(&mut stream)?;
        match head.status {
            // Interim responses, such as 103 Early Hints, precede the final one.
            102..200 | 100 => {}
            200 => return read_body(head.framing?, stream),
            code => bail!("HTTP {code}{}", meaning(code)),
        }
    }
}

/// The status of a response whose head ends it. Reads byte by byte, since what follows is another protocol.
pub fn read_status(stream: impl Read) -> Result<u16> {
    Ok(read_head(&mut BufReader::with_capacity(1, stream))?.status)
}

struct Head {
    status: u16,
    /// Only a body that is read needs a known length: that of a proxy's 200 to CONNECT means nothing.
    framing: Result<Framing>,
}

/// How the length of the body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunks,
    Connection,
}

/// Reads a head, and nothing of what follows it.
fn read_head(stream: &mut impl BufRead) -> Result<Head> {
    let mut begun = Vec::new();
    while begun.len() <= HEAD_MAX_LENGTH {
        let piece = match stream.fill_buf() {
            Ok([]) => return Err(not_http("it ends within its head")),
            Ok(piece) => piece,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context(BROKEN),
        };
        let (before, read) = (begun.len(), piece.len());
        begun.extend_from_slice(piece);
        if let Some((length, head)) = parse_head(&begun)? {
            stream.consume(length - before);
            return Ok(head);
        }
        stream.consume(read);
    }
    Err(not_http("its head does not end"))
}

fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Head)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(not_http("its head is malformed")),
    };
    let status = response.code.ok_or_else(|| not_http("it has no status"))?;
    Ok(Some((length, Head { status, framing: framing(response.headers) })))
}

fn framing(headers: &[httparse::Header<'_>]) -> Result<Framing> {
    let mut framing = Framing::Connection;
    for header in headers {
        let next = if header.name.eq_ignore_ascii_case("content-length") {
            Framing::Length(content_length(header.value)?)
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if !header.value.eq_ignore_ascii_case(b"chunked") {
                return Err(not_http("its transfer encoding was not requested"));
            }
            Framing::Chunks
        } else if header.name.eq_ignore_ascii_case("content-encoding") {
            return Err(not_http("its content encoding was not requested"));
        } else {
            continue;
        };
        // Ambiguous lengths allow response smuggling (RFC 9112, section 6.3).
        if framing != Framing::Connection && framing != next {
            return Err(not_http("it has more than one length"));
        }
        framing = next;
    }
    Ok(framing)
}

fn content_length(value: &[u8]) -> Result<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(not_http("its length is not a number"));
    }
    str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()).context(TOO_LARGE)
}

fn read_body(framing: Framing, mut stream: impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    match framing {
        Framing::Length(length) => take_exactly(&mut stream, length, &mut body)?,
        Framing::Chunks => read_chunks(&mut stream, &mut body)?,
        Framing::Connection => {
            stream.take(BODY_MAX_LENGTH + 1).read_to_end(&mut body).context(BROKEN)?;
            if body.len() as u64 > BODY_MAX_LENGTH {
                bail!(TOO_LARGE);
            }
        }
    }
    Ok(body)
}

fn read_chunks(stream: &mut impl BufRead, body: &mut Vec<u8>) -> Result<()> {
    loop {
        let line = read_line(stream)?;
        let Ok(httparse::Status::Complete((_, length))) = httparse::parse_chunk_size(&line) else {
            return Err(not_http("a chunk's length is malformed"));
        };
        if length == 0 {
            return Ok(());
        }
        take_exactly(stream, length, body)?;
        if read_line(stream)? != b"\r\n" {
            return Err(not_http("a chunk has another length than declared"));
        }
    }
}

fn read_line(stream: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    stream.take(CHUNK_LINE_MAX_LENGTH).read_until(b'\n', &mut line).context(BROKEN)?;
    Ok(line)
}

fn take_exactly(stream: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> Result<()> {
    let already = body.len() as u64;
    if length > BODY_MAX_LENGTH.saturating_sub(already) {
        bail!(TOO_LARGE);
    }
    stream.take(length).read_to_end(body).context(BROKEN)?;
    if body.len() as u64 == already + length { Ok(()) } else { Err(not_http("it ends too early")) }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use proptest::prelude::*;

    use super::read_answer;

    /// Returns its bytes one at a time, like a slow network.
    struct Dripping<'a>(&'a [u8]);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    /// Responses as a server might send them, valid or not.
    fn answers() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            Just("HTTP/1.1 200 OK\r\n".to_owned()),
            Just("HTTP/1.1 103 Early Hints\r\n\r\n".to_owned()),
            Just("Transfer-Encoding: chunked\r\n".to_owned()),
            Just("\r\n".to_owned()),
            (0..40_u64).prop_map(|length| format!("Content-Length: {length}\r\n")),
            any::<u64>().prop_map(|length| format!("{length:x}\r\n")),
            (0..9_usize).prop_map(|length| format!("{length:x}\r\n{}\r\n", "x".repeat(length))),
            "\\PC{0,9}",
        ];
        prop_oneof![
            any::<Vec<u8>>(),
            proptest::collection::vec(line, 0..9).prop_map(|lines| format!(
                "HTTP/1.1 200 OK\r\n{}",
                lines.concat()
            )
            .into_bytes()),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_give_more_than_was_sent(bytes in answers()) {
            let read = read_answer(bytes.as_slice());
            if let Ok(body) = &read {
                prop_assert!(body.len() <= bytes.len());
            }
            // The result does not depend on how the network splits them.
            let dripped = read_answer(Dripping(&bytes));
            prop_assert_eq!(format!("{:?}", dripped), format!("{:?}", read));
        }

        #[test]
        fn chunks_of_any_size_make_the_body(body in any::<Vec<u8>>(), size in 1..50_usize) {
            let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n".to_vec();
            for chunk in body.chunks(size) {
                answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                answer.extend_from_slice(chunk);
                answer.extend_from_slice(b"\r\n");
            }
            prop_assert!(read_answer(answer.as_slice()).is_err(), "it has not ended");
            answer.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(read_answer(answer.as_slice()).unwrap(), body);
        }
    }
}
