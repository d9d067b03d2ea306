//! No `KUBERNETES_EXEC_INFO` makes the parser panic, or an error of more than one line.
#![no_main]

use cp_creds::exec_info::ExecInfo;
use cp_creds::names::ClusterName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match ExecInfo::parse(text) {
        Ok(info) => {
            if let Ok(name) = info.cluster_name() {
                if let Ok(name) = ClusterName::parse(&name) {
                    assert!(!name.as_str().contains(['/', '%']) && !name.as_str().contains(".."));
                }
            }
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
});
