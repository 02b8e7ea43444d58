// The responses of kafkajs: the decoders that its Broker gives to a connection, one for each API and version.
//
// Their objects have the fields in Kafka's order, but many under other names. Requests are left out: their encoders take
// other structures than Kafka's.

import { Unsupported } from '../node/kfuzz_testee.mjs'
import { createRequire } from 'node:module'

const { requests } = createRequire(import.meta.url)('./node_modules/kafkajs/src/protocol/requests')

// Kafka's names of the APIs that have another one.
const APIS = { GroupCoordinator: 'FindCoordinator' }
// The decoders of these also read the tagged fields of the response's header.
const WITH_HEADER = ['AlterPartitionReassignments', 'ListPartitionReassignments']
const DECODERS = {}
for (const [name, { versions = [], protocol }] of Object.entries(requests)) { // without versions: not in this release
  if (versions.length > 0 && !WITH_HEADER.includes(name)) DECODERS[`${APIS[name] ?? name}Response`] = { versions: versions.map(Number), protocol }
}

export const VERSIONS = Object.fromEntries(
  Object.entries(DECODERS).map(([name, { versions }]) => [name, [Math.min(...versions), Math.max(...versions)]])
)

// Of records, the decoder keeps what it has decoded.
export const HIDDEN = { FetchResponse: ['responses.partitions.records'] }

// Kafka's names of fields: those of all messages, then those of one.
const NAMES = {
  throttleTime: 'throttleTimeMs',
  clientSideThrottleTime: 'throttleTimeMs',
  apiVersions: 'apiKeys',
  configEntries: 'configs',
  configName: 'name',
  configSynonyms: 'synonyms',
  configValue: 'value',
  creationResponses: 'results',
  enabledMechanisms: 'mechanisms',
  filterResponses: 'filterResults',
  groupProtocol: 'protocolName',
  isr: 'isrNodes',
  lastStartOffset: 'logStartOffset',
  leader: 'leaderId',
  leaderId: 'leader',
  logAppendTime: 'logAppendTimeMs',
  memberAssignment: 'assignment',
  memberMetadata: 'metadata',
  partition: 'partitionIndex',
  partitionId: 'partitionIndex',
  partitionMetadata: 'partitions',
  protocol: 'protocolData',
  resourcePatternType: 'patternType',
  state: 'groupState',
  topic: 'name',
  topicErrorCode: 'errorCode',
  topicMetadata: 'topics'
}
const OWN_NAMES = {
  AddPartitionsToTxnResponse: {
    errors: 'resultsByTopicV3AndBelow',
    partitionErrors: 'resultsByPartition',
    errorCode: 'partitionErrorCode'
  },
  AlterConfigsResponse: { resources: 'responses' },
  CreatePartitionsResponse: { topicErrors: 'results' },
  CreateTopicsResponse: { topicErrors: 'topics' },
  DeleteTopicsResponse: { topicErrors: 'responses' },
  DescribeConfigsResponse: { resources: 'results' },
  DescribeGroupsResponse: { memberAssignment: 'memberAssignment', memberMetadata: 'memberMetadata' },
  FetchResponse: { topicName: 'topic' },
  ListOffsetsResponse: { responses: 'topics', offsets: 'oldStyleOffsets' },
  MetadataResponse: { partitionErrorCode: 'errorCode', replicas: 'replicaNodes' },
  OffsetCommitResponse: { responses: 'topics' },
  OffsetFetchResponse: { responses: 'topics', offset: 'committedOffset' },
  ProduceResponse: { offset: 'baseOffset', timestamp: 'logAppendTimeMs', topics: 'responses', partitions: 'partitionResponses', partition: 'index', topicName: 'name' }
}

export async function decodeMessage({ message, version, hex }, said) {
  const decoder = DECODERS[message]
  if (!decoder?.versions.includes(version)) throw new Unsupported(`no version ${version} of ${message}`)
  // The requests that come with the decoders are not used; most want a list of topics.
  const { response } = decoder.protocol({ version })({ topics: [] })
  const read = await response.decode(Buffer.from(hex, 'hex'))
  said.message = structJson(read, { message, version })
}

function structJson(struct, where) {
  const shown = {}
  for (const [key, value] of Object.entries(struct)) {
    if (key === 'coordinator') Object.assign(shown, structJson(value, where))
    else if (!isOwn(key, struct, where)) shown[nameOf(key, where.message, struct)] = valueJson(value, where)
  }
  // The decoder writes the size before them again, as the first mechanisms expect it.
  if (where.message === 'SaslAuthenticateResponse') shown.authBytes = shown.authBytes?.slice(8)
  return shown
}

function nameOf(key, message, struct) {
  if (key === 'configSource' && !('readOnly' in struct)) return 'source' // of a synonym
  return OWN_NAMES[message]?.[key] ?? NAMES[key] ?? key
}

/** Whether kafkajs has made this field itself, or it is the records of a partition. */
function isOwn(key, struct, { message, version }) {
  return (
    (key === 'throttleTime' && 'clientSideThrottleTime' in struct) ||
    (key === 'isDefault' && version > 0) ||
    (key === 'error' && message === 'DeleteGroupsResponse') ||
    (key === 'messages' && message === 'FetchResponse')
  )
}

function valueJson(value, where) {
  if (Buffer.isBuffer(value)) return value.toString('hex')
  if (typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return value.map(one => valueJson(one, where))
  return value !== null && typeof value === 'object' ? structJson(value, where) : value
}
