// Sends samples by remote write 2.0 with the client library of Prometheus. Called by scripts/clients.sh.
//
// usage: remote-write URL TOKEN
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
)

// bearer adds a token to requests.
type bearer struct{ token string }

func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(request)
}

func write(url, token string, request *writev2.Request) (remote.WriteResponseStats, error) {
	client := &http.Client{Transport: bearer{token}, Timeout: 30 * time.Second}
	api, err := remote.NewAPI(url, remote.WithAPIHTTPClient(client))
	if err != nil {
		return remote.WriteResponseStats{}, err
	}
	return api.Write(context.Background(), remote.WriteV2MessageType, request)
}

// request has a series with samples, a histogram and an exemplar.
func request() *writev2.Request {
	symbols := writev2.NewSymbolTable()
	labels := symbols.SymbolizeLabels([]string{"__name__", "clients_go_seconds", "job", "clients go", "le", "ä"}, nil)
	exemplar := symbols.SymbolizeLabels([]string{"trace_id", "0102"}, nil)
	at := int64(1767603600000)
	metadata := &writev2.Metadata{
		Type:    writev2.Metadata_METRIC_TYPE_HISTOGRAM,
		HelpRef: symbols.Symbolize("Seconds."),
		UnitRef: symbols.Symbolize("seconds"),
	}
	samples := []*writev2.Sample{{Value: 1.5, Timestamp: at}, {Value: 2.5, Timestamp: at + 1}}
	histogram := &writev2.Histogram{
		Count:          &writev2.Histogram_CountInt{CountInt: 6},
		ZeroCount:      &writev2.Histogram_ZeroCountInt{ZeroCountInt: 1},
		Sum:            9.5,
		Schema:         2,
		PositiveSpans:  []*writev2.BucketSpan{{Offset: -1, Length: 2}},
		PositiveDeltas: []int64{2, 1},
		Timestamp:      at + 2,
	}
	series := []*writev2.TimeSeries{
		{LabelsRefs: labels, Samples: samples, Metadata: metadata},
		{
			LabelsRefs: labels, Histograms: []*writev2.Histogram{histogram}, Metadata: metadata,
			Exemplars: []*writev2.Exemplar{{LabelsRefs: exemplar, Value: 0.5, Timestamp: at}},
		},
	}
	return &writev2.Request{Symbols: symbols.Symbols(), Timeseries: series}
}

func check(url, token string) error {
	expected := remote.WriteResponseStats{Samples: 2, Histograms: 1, Exemplars: 1}
	for range 2 {
		found, err := write(url, token, request())
		if err != nil {
			return err
		}
		if found.Samples != expected.Samples || found.Histograms != expected.Histograms || found.Exemplars != expected.Exemplars {
			return fmt.Errorf("expected %+v, found %+v", expected, found)
		}
	}
	// a series without a name beside good ones
	bad := request()
	bad.Timeseries = append(bad.Timeseries, &writev2.TimeSeries{LabelsRefs: []uint32{3, 4}, Samples: bad.Timeseries[0].Samples})
	found, err := write(url, token, bad)
	if err == nil || found.Samples != expected.Samples {
		return fmt.Errorf("a bad series: %v, %+v", err, found)
	}
	if _, err := write(url, "wrong", request()); err == nil {
		return errors.New("a wrong token is accepted")
	}
	return nil
}

func main() {
	if err := check(os.Args[1], os.Args[2]); err != nil {
		fmt.Println("client_golang: remote write 2.0: FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("client_golang: remote write 2.0: ok")
}
