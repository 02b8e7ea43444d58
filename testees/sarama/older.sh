# Leaves in layouts.txt the responses that the library's version in go.mod has, up to its newest version of each.
set -e
library=$(grep -o 'github.com/[A-Za-z]*/sarama' go.mod)
folder=$(go mod download -json "$library" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
find "$folder" -maxdepth 1 -name '*.go' ! -name '*_test.go' -exec cat {} + | awk '
    # A Broker has a method for each request, whose type says which versions it has.
    FNR == NR && /^func \(b \*Broker\) [A-Z][A-Za-z]*\([a-z]+ \*[A-Za-z]+Request\)/ {
        split($0, part, /[(*) ]+/); type[part[4]] = part[6]
    }
    FNR == NR && /^func \([a-z]+ \*[A-Za-z]+Request\) (isValidVersion|requiredVersion)\(/ {
        split($0, part, /[(*) ]+/); now = part[3]; stated = part[4] == "isValidVersion"
    }
    FNR == NR && /^}/ { now = "" }
    FNR == NR && now != "" && stated && match($0, /<= [0-9]+/) { limit[now] = substr($0, RSTART + 3, RLENGTH - 3) }
    FNR == NR && now != "" && !stated && /case / {
        count = split($0, numbers, /[^0-9]+/)
        for (i = 1; i <= count; i++) if (numbers[i] != "" && numbers[i] > most[now]) most[now] = numbers[i] + 0
    }
    FNR == NR { next }
    /^[A-Z]/ {
        request = type[$4]; keep = $1 ~ /Response$/ && request != ""
        newest = request in limit ? limit[request] : most[request] + 0
        if (newest < $2) $2 = newest
    }
    /^#/ || keep' - layouts.txt > layouts.new
mv layouts.new layouts.txt
