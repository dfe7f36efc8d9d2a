//! Lists of addresses.

use memchr::memchr_iter;

use crate::spaces::trimmed;

/// The addresses of a list with `,` between them that end with `suffix`, with `, ` between them, added to `out`.
pub fn filter(list: &str, suffix: &str, out: &mut String) {
    let mut from = 0;
    let mut any = false;
    for comma in memchr_iter(b',', list.as_bytes()).chain([list.len()]) {
        let address = trimmed(&list[from..comma]);
        from = comma + 1;
        if address.ends_with(suffix) {
            if any {
                out.push_str(", ");
            }
            any = true;
            out.push_str(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_inside_stay() {
        for (list, wanted) in [
            ("", ""),
            ("a@enron.com", "a@enron.com"),
            ("a@enron.net, b@enron.com ,\tc@enron.com", "b@enron.com, c@enron.com"),
            (",, @enron.com,", "@enron.com"),
            ("a@Enron.com,b@enron.com.", ""),
        ] {
            let mut out = String::new();
            filter(list, "@enron.com", &mut out);
            assert_eq!(out, wanted, "{list}");
        }
    }
}
