package main

import (
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/addoffsetstotxn"
	"github.com/segmentio/kafka-go/protocol/addpartitionstotxn"
	"github.com/segmentio/kafka-go/protocol/alterclientquotas"
	"github.com/segmentio/kafka-go/protocol/alterconfigs"
	"github.com/segmentio/kafka-go/protocol/alterpartitionreassignments"
	"github.com/segmentio/kafka-go/protocol/alteruserscramcredentials"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createacls"
	"github.com/segmentio/kafka-go/protocol/createpartitions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/deleteacls"
	"github.com/segmentio/kafka-go/protocol/deletegroups"
	"github.com/segmentio/kafka-go/protocol/deletetopics"
	"github.com/segmentio/kafka-go/protocol/describeacls"
	"github.com/segmentio/kafka-go/protocol/describeclientquotas"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/segmentio/kafka-go/protocol/describeuserscramcredentials"
	"github.com/segmentio/kafka-go/protocol/electleaders"
	"github.com/segmentio/kafka-go/protocol/endtxn"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/heartbeat"
	"github.com/segmentio/kafka-go/protocol/incrementalalterconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/leavegroup"
	"github.com/segmentio/kafka-go/protocol/listgroups"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/listpartitionreassignments"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetdelete"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
	"github.com/segmentio/kafka-go/protocol/txnoffsetcommit"
)

// The requests and responses of the library. Produce requests and fetch responses are missing: the library decodes the
// records in them, so nothing can show their bytes. So are the requests of Metadata and DescribeAcls, whose structs have
// another shape than Kafka's.
var apis = []protocol.Message{
	&fetch.Request{}, &produce.Response{},
	&addoffsetstotxn.Request{}, &addoffsetstotxn.Response{},
	&addpartitionstotxn.Request{}, &addpartitionstotxn.Response{},
	&alterclientquotas.Request{}, &alterclientquotas.Response{},
	&alterconfigs.Request{}, &alterconfigs.Response{},
	&alterpartitionreassignments.Request{}, &alterpartitionreassignments.Response{},
	&alteruserscramcredentials.Request{}, &alteruserscramcredentials.Response{},
	&apiversions.Request{}, &apiversions.Response{},
	&createacls.Request{}, &createacls.Response{},
	&createpartitions.Request{}, &createpartitions.Response{},
	&createtopics.Request{}, &createtopics.Response{},
	&deleteacls.Request{}, &deleteacls.Response{},
	&deletegroups.Request{}, &deletegroups.Response{},
	&deletetopics.Request{}, &deletetopics.Response{},
	&describeacls.Response{},
	&describeclientquotas.Request{}, &describeclientquotas.Response{},
	&describeconfigs.Request{}, &describeconfigs.Response{},
	&describegroups.Request{}, &describegroups.Response{},
	&describeuserscramcredentials.Request{}, &describeuserscramcredentials.Response{},
	&electleaders.Request{}, &electleaders.Response{},
	&endtxn.Request{}, &endtxn.Response{},
	&findcoordinator.Request{}, &findcoordinator.Response{},
	&heartbeat.Request{}, &heartbeat.Response{},
	&incrementalalterconfigs.Request{}, &incrementalalterconfigs.Response{},
	&initproducerid.Request{}, &initproducerid.Response{},
	&joingroup.Request{}, &joingroup.Response{},
	&leavegroup.Request{}, &leavegroup.Response{},
	&listgroups.Request{}, &listgroups.Response{},
	&listoffsets.Request{}, &listoffsets.Response{},
	&listpartitionreassignments.Request{}, &listpartitionreassignments.Response{},
	&metadata.Response{},
	&offsetcommit.Request{}, &offsetcommit.Response{},
	&offsetdelete.Request{}, &offsetdelete.Response{},
	&offsetfetch.Request{}, &offsetfetch.Response{},
	&saslauthenticate.Request{}, &saslauthenticate.Response{},
	&saslhandshake.Request{}, &saslhandshake.Response{},
	&syncgroup.Request{}, &syncgroup.Response{},
	&txnoffsetcommit.Request{}, &txnoffsetcommit.Response{},
}
