//! The list of SQL statements, and how one is cancelled.

use crate::harness::Mill;

#[test]
fn statements_are_listed_and_cancelled() {
    let mill = Mill::start();
    let listed = mill.get("/api/v1/statements").json();
    assert_eq!(
        listed.to_string(),
        r#"[{"caller":"admin","id":7,"origin":"http","phase":"running","rows":3,"started":"1970-01-01T00:00:01Z","statement":"SELECT 1"}]"#
    );
    let reply = mill.send("DELETE", "/api/v1/statements/7", &[], b"");
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"cancelled":7}"#));
    let message = mill.send("DELETE", "/api/v1/statements/8", &[], b"").refusal(404, "not_found");
    assert_eq!(message, "no statement 8 runs (DELETE /api/v1/statements/8)");
    mill.send("DELETE", "/api/v1/statements/x", &[], b"").refusal(400, "invalid");
}
