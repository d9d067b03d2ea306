//! What runs in the pods of `tests/hubs/pods.rs`: compiled there, by itself, into one static program.
//!
//!     program write PATH TEXT     writes a file and ends
//!     program serve PORT [WORD]…  says its words, and does what it is asked for by HTTP until it is told to exit
//!
//!     /read/PATH        the file
//!     /write/PATH       writes into the file
//!     /env/NAME         the variable
//!     /connect/NAME/P   connects to port P of a host
//!     /allocate/MIB     uses that much memory for a moment
//!     /is/WHAT          200 or, after /set/WHAT/no, 503
//!     /exit/CODE        ends

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", path, text] => std::fs::write(path, text).unwrap(),
        ["serve", port, words @ ..] => serve(port.parse().unwrap(), &words.join(" ")),
        other => panic!("unknown arguments: {other:?}"),
    }
}

fn serve(port: u16, words: &str) {
    println!("started {words}");
    let mut not = BTreeSet::new();
    for stream in TcpListener::bind(("0.0.0.0", port)).unwrap().incoming() {
        // A client that leaves early is no reason to end.
        let _ = stream.and_then(|stream| answer(stream, &mut not));
    }
}

fn answer(mut stream: TcpStream, not: &mut BTreeSet<String>) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default();
    let (verb, rest) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    let (ok, text) = match verb {
        "read" => told(std::fs::read_to_string(format!("/{rest}"))),
        "write" => told(std::fs::write(format!("/{rest}"), "text").map(|()| String::new())),
        "env" => (std::env::var(rest).is_ok(), std::env::var(rest).unwrap_or_default()),
        "connect" => {
            let (host, port) = rest.split_once('/').unwrap_or_default();
            told(TcpStream::connect((host, port.parse().unwrap_or_default())).map(|_| String::new()))
        }
        "allocate" => {
            let memory = vec![1_u8; rest.parse::<usize>().unwrap_or_default() << 20];
            (std::hint::black_box(&memory).iter().all(|byte| *byte == 1), String::new())
        }
        "is" => (!not.contains(rest), String::new()),
        "set" => {
            match rest.split_once('/').unwrap_or_default() {
                (what, "no") => not.insert(what.to_owned()),
                (what, _) => not.remove(what),
            };
            (true, String::new())
        }
        "exit" => std::process::exit(rest.parse().unwrap_or_default()),
        _ => (false, String::new()),
    };
    let status = if ok { "200 OK" } else { "503 No" };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len())
}

fn told(done: std::io::Result<String>) -> (bool, String) {
    match done {
        Ok(text) => (true, text),
        Err(error) => (false, error.to_string()),
    }
}
