//! One test on hubs with each flavour of the ClusterProfile CRD.

#![allow(unused_macros, unused_imports, reason = "not every program has such tests")]

/// Makes a test for each flavour of functions that take a [`Flavour`](local_hub::Flavour).
macro_rules! on_each_flavour {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            use local_hub::Flavour;

            #[tokio::test]
            async fn where_lists_are_maps() {
                super::$name(Flavour::Map).await;
            }

            #[tokio::test]
            async fn where_lists_are_atomic() {
                super::$name(Flavour::Atomic).await;
            }

            #[tokio::test]
            async fn where_v1alpha2_is_served() {
                super::$name(Flavour::V1alpha2).await;
            }
        }
    )+ };
}

pub(crate) use on_each_flavour;
