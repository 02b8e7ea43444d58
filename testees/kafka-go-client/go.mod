module kafka_go_client_testee

go 1.26

require (
	github.com/segmentio/kafka-go v0.4.51
	kfuzz_testee v0.0.0
)

require (
	github.com/klauspost/compress v1.15.9 // indirect
	github.com/pierrec/lz4/v4 v4.1.15 // indirect
)

replace kfuzz_testee => ../go
