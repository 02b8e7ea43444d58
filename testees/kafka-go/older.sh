# Leaves out of apis.go the messages that the library's version in go.mod lacks.
set -e
library=github.com/segmentio/kafka-go
folder=$(go mod download -json $library | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
for message in $(sed -n "s|.*\"$library/protocol/\(.*\)\"|\1|p" apis.go); do
    test -d "$folder/protocol/$message" || sed -i "/protocol\/$message\"/d; /&$message\./d" apis.go
done
