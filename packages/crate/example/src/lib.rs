//! Shows the vectors to the crate kafka-protocol; see tests/.
