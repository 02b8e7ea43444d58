// The messages of @platformatic/kafka: the parsers of its responses and the writers of its requests.
//
// The package exports them for each API and version, as in `fetchV17`. An answer shows the object that a parser returns.
// If the response has an error code, the parser throws it with the error. Its arguments and fields mostly have Kafka's
// names; this module has the others.

import { Unsupported } from '../node/kfuzz_testee.mjs'
import * as kafka from '@platformatic/kafka'
import { Reader } from './node_modules/@platformatic/kafka/dist/protocol/reader.js'

const APIS = {}
for (const [name, api] of Object.entries(kafka)) {
  const [, start, rest, version] = name.match(/^([a-z])(\w*)V(\d+)$/) ?? []
  if (version && api.parseResponse) (APIS[start.toUpperCase() + rest] ??= {})[api.api.version] = api
}

// The library makes the records of a Produce request from messages, so bytes cannot be given to it.
const NO_REQUEST = ['Produce']

export function messageVersions() {
  const found = {}
  for (const [name, versions] of Object.entries(APIS)) {
    const numbers = Object.keys(versions).map(Number)
    const range = [Math.min(...numbers), Math.max(...numbers)]
    if (!NO_REQUEST.includes(name)) found[`${name}Request`] = range
    found[`${name}Response`] = range
  }
  return found
}

function apiOf(message, version) {
  const api = APIS[message.replace(/(Request|Response)$/, '')]?.[version]
  if (!api) throw new Unsupported(`no version ${version} of ${message}`)
  return api
}

// --- responses -------------------------------------------------------------------------------------------------------

// Fields that the parsers do not keep.
export const HIDDEN = {
  ApiVersionsResponse: ['supportedFeatures', 'finalizedFeaturesEpoch', 'finalizedFeatures', 'zkMigrationReady'],
  CreateTopicsResponse: ['topics.topicConfigErrorCode'],
  FetchResponse: [
    'responses.partitions.divergingEpoch',
    'responses.partitions.currentLeader',
    'responses.partitions.snapshotId',
    // The parser gives null and empty the same place: none.
    'responses.partitions.records',
    'nodeEndpoints'
  ],
  MetadataResponse: ['clusterAuthorizedOperations'],
  ProduceResponse: ['responses.partitionResponses.currentLeader', 'nodeEndpoints']
}

// Kafka's names of the fields that have another one, by their place; and of those that a version has another one for.
const RESPONSE_NAMES = {
  DeleteAclsResponse: { 'filterResults.matchingAcls.resourcePatternType': 'patternType' },
  DescribeAclsResponse: { 'resources.resourcePatternType': 'patternType' },
  FetchResponse12: { 'responses.topicId': 'topic' }
}

// The first version of fields that the parsers also add to the object in earlier versions, or in all of them.
const SINCE = {
  ApiVersionsResponse: { 'apiKeys.name': Infinity },
  DescribeClusterResponse: { endpointType: 1 },
  DescribeLogDirsResponse: { errorCode: 3, 'results.totalBytes': 4, 'results.usableBytes': 4 },
  JoinGroupResponse: { protocolType: 7, skipAssignment: 9 },
  ListGroupsResponse: { 'groups.groupType': 5 },
  MetadataResponse: { 'topics.topicId': 10 },
  ProduceResponse: { 'responses.partitionResponses.recordErrors': 8, 'responses.partitionResponses.errorMessage': 8 }
}

export function decodeMessage({ message, version, hex }, said) {
  const { parseResponse } = apiOf(message, version)
  const reader = Reader.from(Buffer.from(hex, 'hex'))
  const records = noteRecords(reader)
  let response
  try {
    response = parseResponse(0, 0, version, reader)
  } catch (error) {
    if (!error.response) throw error
    response = error.response
  }
  if (message === 'AddPartitionsToTxnResponse' && version < 4) {
    // The parser makes one transaction of what these versions have.
    const { throttleTimeMs, resultsByTransaction } = response
    response = { throttleTimeMs, resultsByTopicV3AndBelow: resultsByTransaction[0].topicResults }
  }
  const names = RESPONSE_NAMES[`${message}${version}`] ?? RESPONSE_NAMES[message] ?? {}
  said.message = responseJson(response, { message, version, records, names })
}

/** A list that gets the bytes of each partition which the parser hands to the reader of record batches. */
function noteRecords({ buffer }) {
  const found = []
  const { subarray } = buffer
  buffer.subarray = (...range) => {
    const part = subarray.apply(buffer, range)
    found.push(part.slice())
    return part
  }
  return found
}

function responseJson(value, where, place = '') {
  const name = place.slice(place.lastIndexOf('.') + 1)
  if (typeof value === 'bigint') return String(value)
  if (Buffer.isBuffer(value)) return value.toString('hex')
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value)
  if (UUIDS.has(name) && UUID.test(value)) return Buffer.from(value.replaceAll('-', ''), 'hex').toString('base64url')
  if (Array.isArray(value)) return value.map(one => responseJson(one, where, place))
  if (value === null || typeof value !== 'object') return value
  const shown = {}
  for (const [key, part] of Object.entries(value)) {
    const inner = place ? `${place}.${key}` : key
    if (part === undefined || SINCE[where.message]?.[inner] > where.version) continue
    if (key === 'records') shown.records = where.records.shift().toString('hex')
    else shown[where.names[inner] ?? key] = responseJson(part, where, inner)
  }
  return shown
}

// --- requests --------------------------------------------------------------------------------------------------------

// The library's names of arguments and of their fields that have another one than Kafka's, by their place.
const FILTER = {
  resourceTypeFilter: 'resourceType',
  resourceNameFilter: 'resourceName',
  patternTypeFilter: 'resourcePatternType',
  principalFilter: 'principal',
  hostFilter: 'host'
}
const REQUEST_NAMES = {
  AddPartitionsToTxnRequest: {
    v3AndBelowTransactionalId: 'transactionalId',
    v3AndBelowProducerId: 'producerId',
    v3AndBelowProducerEpoch: 'producerEpoch',
    v3AndBelowTopics: 'topics'
  },
  AlterClientQuotasRequest: { 'entries.entity': 'entities' },
  AlterPartitionRequest: { topics: 'topic' },
  DeleteAclsRequest: Object.fromEntries(Object.entries(FILTER).map(([key, name]) => [`filters.${key}`, name])),
  DescribeAclsRequest: FILTER,
  DescribeLogDirsRequest: { 'topics.topic': 'name' },
  FetchRequest: { 'topics.topic': 'topicId', 'forgottenTopicsData.topicId': 'topic' },
  ListOffsetsRequest: { replicaId: 'replica' },
  TxnOffsetCommitRequest: { generationIdOrMemberEpoch: 'generationId' },
  OffsetForLeaderEpochRequest: { 'topics.topic': 'name', 'topics.partitions.partition': 'partitionIndex' }
}

const UUIDS = new Set(['topicId', 'clientInstanceId', 'replicaDirectoryId'])
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const LONGS = new Set(
  ('brokerEpoch committedOffset durationFilter expiryTimePeriodMs fetchOffset logStartOffset maxLifetimeMs offset ' +
    'producerId producerIdFilters renewPeriodMs timestamp v3AndBelowProducerId').split(' ')
)
const BYTES = new Set(
  'assignment authBytes clientHostAddress hmac metadata metrics requestData requestPrincipal salt saltedPassword'.split(' ')
)

// Requests whose arguments have another shape than Kafka's fields.
const ARGUMENTS = {
  AddPartitionsToTxnRequest: (given, version) => [version < 4 ? [given] : given.transactions],
  DescribeAclsRequest: given => [given],
  MetadataRequest: ({ topics, allowAutoTopicCreation, includeTopicAuthorizedOperations }) => [
    topics?.map(topic => topic.name),
    allowAutoTopicCreation,
    includeTopicAuthorizedOperations
  ]
}

export function encodeMessage({ message, version, body }, said) {
  const { createRequest } = apiOf(message, version)
  const given = requestOf(body, REQUEST_NAMES[message] ?? {})
  const values = (ARGUMENTS[message] ?? byName(createRequest))(given.object, version)
  said.hex = createRequest(...values).buffer.toString('hex')
  const unread = given.unread()
  if (unread) throw new Unsupported(`the library writes no ${unread}`)
}

/** A function that finds the arguments of a function by the names of its parameters. */
function byName(called) {
  const [, names] = called.toString().match(/\(([^)]*)\)/)
  return given => names.split(',').map(name => given[name.trim()])
}

/** What a library function gets for a body, and `unread`: the first field that it has not read and that has no default. */
function requestOf(body, names, place = '') {
  const values = {}
  const parts = {}
  for (const [key, value] of Object.entries(body)) {
    const inner = place ? `${place}.${key}` : key
    const name = names[inner] ?? key
    const nested = (Array.isArray(value) ? value : [value]).filter(isStruct).map(one => requestOf(one, names, inner))
    parts[name] = { key, value, nested, read: false }
    if (nested.length) values[name] = Array.isArray(value) ? nested.map(one => one.object) : nested[0].object
    else values[name] = Array.isArray(value) ? value.map(one => valueOf(one, key)) : valueOf(value, key)
  }
  const object = new Proxy(values, {
    get(target, name) {
      if (Object.hasOwn(parts, name)) parts[name].read = true
      return target[name]
    }
  })
  const unread = () => {
    for (const { key, value, nested, read } of Object.values(parts)) {
      if (!read && !isUsual(value)) return key
      const inside = read && nested.map(one => one.unread()).find(Boolean)
      if (inside) return inside
    }
  }
  return { object, unread }
}

const isStruct = value => value !== null && typeof value === 'object' && !Array.isArray(value)

/** Whether it is a default of Kafka's definitions, as far as the library leaves fields out. */
function isUsual(value) {
  if (isStruct(value)) return Object.values(value).every(isUsual)
  return value === null || value === false || value === '' || value.length === 0 || Number(value) === -1 || value === ZERO
}

const ZERO = 'AAAAAAAAAAAAAAAAAAAAAA'

function valueOf(value, key) {
  if (value === null) return null
  if (LONGS.has(key)) return BigInt(value)
  if (BYTES.has(key)) return Buffer.from(value, 'hex')
  if (UUIDS.has(key)) return Buffer.from(value, 'base64url').toString('hex')
  return value
}
