//! Shutdown: requests in progress finish, new ones are rejected.

use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Mill, TOKEN};

fn head(len: usize) -> String {
    format!(
        "POST /api/v1/streams/Flight HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
    )
}

#[test]
fn requests_that_were_begun_are_finished() {
    let mut mill = Mill::start();
    let body = br#"{"id":"F1","delay":3}"#;
    let mut begun = mill.connect(head(body.len()).as_bytes());
    begun.write(&body[..1]);
    mill.wait_for_metric("http_request_body_bytes", 1024.0);
    let stopping = mill.begin_shutdown(Duration::from_secs(60));
    while TcpStream::connect(mill.address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    begun.write(&body[1..]);
    let reply = begun.read_all();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["accepted"], 1);
    assert_eq!(mill.block_on(stopping).unwrap(), 0);
    assert_eq!(mill.engine.stream("Flight").unwrap().schema.name, "Flight");
}

#[test]
fn what_does_not_finish_is_cut_off_after_the_grace_period() {
    let mut mill = Mill::start();
    let mut begun = mill.connect(head(100).as_bytes());
    begun.write(b"{");
    mill.wait_for_metric("http_request_body_bytes", 1024.0);
    let stopping = mill.begin_shutdown(Duration::from_millis(50));
    assert_eq!(mill.block_on(stopping).unwrap(), 1);
    assert_eq!(begun.read_text(), "");
}
