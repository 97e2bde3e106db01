"""Storage in the cloud: tables in DynamoDB, their change streams, and objects in S3, GCS or Azure.

Used from outside: session, dynamodb, wire, answers, dynamostreams, buckets.
Read in this order: session, dynamodb, wire, answers, dynamostreams, buckets, bucket_errors.
"""
